// How much of a computation is done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "perseus/types.hpp"

namespace perseus {

// Asks `progress` whether to go on. What that throws cancels too: other threads would not hear of it before their work is done.
inline void ask(const Progress& progress, double done, std::atomic<bool>& cancelled) {
  try {
    if (!progress(done)) cancelled = true;
  } catch (...) {
    cancelled = true;
    throw;
  }
}

// A computation of several stages, in work: nanoseconds of one core, as estimated before. What a stage takes less or more than
// that shows at its end, when all of its work counts as done. So the share grows about as time does. Any thread may add; only
// the calling thread reports.
class Meter {
 public:
  // `work`: of all stages.
  Meter(const Progress& progress, double work) : progress_(progress), work_(std::max(work, 1.0)) {}

  // The next stage begins, of so many pieces, which take the same time each.
  void begin(double work, double num_pieces) {
    end();
    stage_work_ = work;
    num_pieces_ = std::max(num_pieces, 1.0);
  }
  // The stage is over, however much of it was needed.
  void end() {
    before_ += stage_work_;
    stage_work_ = 0;
    done_ = 0;
  }
  void add(double pieces = 1) { done_.fetch_add(pieces, std::memory_order_relaxed); }
  // Whether to go on; also asks `progress`.
  bool go_on(bool is_caller) {
    if (is_caller && progress_) ask(progress_, share(), cancelled_);
    return !cancelled_;
  }
  [[nodiscard]] bool is_cancelled() const { return cancelled_; }

 private:
  [[nodiscard]] double share() const {
    const double of_stage = std::min(1.0, done_.load(std::memory_order_relaxed) / num_pieces_);
    return std::min(1.0, (before_ + stage_work_ * of_stage) / work_);
  }

  const Progress& progress_;
  double work_;
  double before_ = 0;
  double stage_work_ = 0;
  double num_pieces_ = 1;
  std::atomic<double> done_ = 0;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace perseus
