// Work on several threads: where no more of them can be started, and where the calling one is interrupted.
#include "parallel.hpp"

#include <pthread.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "meter.hpp"
#include "test.hpp"

using namespace perseus;

namespace {

// As where a user's limit is reached: stacks of threads that begin now are larger than any memory.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 47);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace

TEST(where_no_thread_can_be_started_the_caller_does_all_work) {
  const NoMoreThreads none;
  std::vector<int> times(100);
  parallel_for(
      times.size(),
      [&] {
        return [&](std::size_t k, bool) {
          ++times[k];
          return true;
        };
      },
      1);
  CHECK(std::ranges::all_of(times, [](int count) { return count == 1; }));
}

TEST(an_interrupt_ends_the_work_of_all_threads) {
  const Progress interrupted = [](double) -> bool { throw std::runtime_error("interrupted"); };
  Meter meter(interrupted, 1);
  CHECK(meter.go_on(false));
  CHECK_THROWS(meter.go_on(true), "interrupted");
  CHECK(!meter.go_on(false));
}
