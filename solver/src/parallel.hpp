// A loop over independent pieces of work on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace perseus {

// Calls make_worker() once per thread and the worker it returns with every index in [0, count). The worker returns false to
// stop all. Results must not depend on which worker gets which index. Progress is reported by worker 0, the calling thread.
// A thread is worth starting for `worth_a_thread` pieces.
template <class MakeWorker>
void parallel_for(std::size_t count, MakeWorker make_worker, std::size_t worth_a_thread = 16) {
  const std::size_t num_threads =
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, std::max<std::size_t>(count / worth_a_thread, 1));
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&](bool is_caller) {
    try {
      auto worker = make_worker();
      for (std::size_t i; (i = next.fetch_add(1)) < count;) {
        if (!worker(i, is_caller)) next.store(count);
      }
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      error = std::current_exception();
      next.store(count);
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (std::size_t t = 1; t < num_threads; ++t) threads.emplace_back(work, false);
  } catch (const std::system_error&) {  // a limit of threads is reached: those that there are do the work
  }
  work(true);
  threads.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace perseus
