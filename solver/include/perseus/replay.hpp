// One iteration under a plan, on measured times.
//
// A clock change is asked for when the clocked instruction before it on the rank ends and takes the latency of the clock asked
// for to arrive. An idle gap hides it; what the gap does not hide, the next instruction runs at the old clock (ARCHITECTURE.md, "Clock changes").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/graph.hpp"
#include "perseus/menu.hpp"

namespace perseus {

using Plan = std::vector<std::int32_t>;

struct Outcome {
  TimePs time_ps = 0;
  EnergyUj effective_uj = 0;
  std::int32_t num_changes = 0;
};

class Replay {
 public:
  // All must outlive the replay. `latency_ps` (num_clocks, as the menu's): from asking for a clock to having it; empty where
  // changes are free. Where `shuns_unreached`, a change that does not arrive within its instruction costs more
  // than it could save: what is asked for next would overtake it, so that no rank could follow such a plan.
  Replay(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps, bool shuns_unreached = false);

  // Fills start_ps, end_ps and effective_uj.
  Outcome play(std::span<const std::int32_t> plan);

  std::vector<TimePs> start_ps, end_ps;  // (num_instructions)
  std::vector<EnergyUj> effective_uj;    // (num_instructions)

  // The clocked instruction before it on its rank, -1 for none: constants keep the clock they find.
  [[nodiscard]] std::int32_t previous_clocked(std::int32_t i) const { return previous_clocked_[i]; }
  [[nodiscard]] std::int32_t clock_mhz(std::int32_t i, std::int32_t index) const {
    return menu_.clock_mhz[menu_.curve_begin[menu_.curve_of[i]] + index];
  }
  // Index in i's own curve of the clock that its predecessor runs at `index`, or of the nearest one measured.
  [[nodiscard]] std::int32_t same_clock(std::int32_t i, std::int32_t index) const {
    return same_clock_[same_clock_begin_[i] + index];
  }
  // The other way round: index in the predecessor's curve of the clock that i runs at `index`.
  [[nodiscard]] std::int32_t same_clock_before(std::int32_t i, std::int32_t index) const {
    return same_clock_[same_clock_before_begin_[i] + index];
  }
  // What instruction i takes and draws at clock `index` if its predecessor runs at `before` and `gap_ps` lies between them.
  struct Work {
    TimePs duration_ps;
    EnergyUj effective_uj;
  };
  [[nodiscard]] Work work(std::int32_t i, std::int32_t index, std::int32_t before, TimePs gap_ps) const {
    const std::int32_t begin = menu_.curve_begin[menu_.curve_of[i]];
    const Work work{.duration_ps = menu_.duration_ps[begin + index], .effective_uj = menu_.effective_uj[begin + index]};
    const std::int32_t p = previous_clocked_[i];
    if (p < 0 || latency_ps_.empty()) return work;
    const TimePs late = latency_ps_[begin + index] - gap_ps;
    if (late <= 0 || clock_mhz(p, before) == menu_.clock_mhz[begin + index]) return work;
    return changed(i, index, before, late, work);
  }

  // From asking for the clock at `index` of instruction i to having it.
  [[nodiscard]] TimePs latency_of(std::int32_t i, std::int32_t index) const {
    return latency_ps_.empty() ? 0 : latency_ps_[menu_.curve_begin[menu_.curve_of[i]] + index];
  }
  // Whether a change to the clock at `index` of instruction i arrives before its end, give or take the noise, if its predecessor
  // runs at `before` and `gap_ps` lies between them.
  [[nodiscard]] bool can_reach(std::int32_t i, std::int32_t index, std::int32_t before, TimePs gap_ps) const {
    const TimePs old_ps = menu_.duration_ps[menu_.curve_begin[menu_.curve_of[i]] + same_clock(i, before)];
    return static_cast<double>(latency_of(i, index) - gap_ps) <= kReachedShare * static_cast<double>(old_ps);
  }
  // [uJ] What a change that is not reached costs in a search.
  [[nodiscard]] EnergyUj price_of_unreached_uj(std::int32_t i) const {
    return menu_.effective_uj[menu_.curve_begin[menu_.curve_of[i]]];
  }
  // Whether every change of a plan that has just been played arrives within its instruction.
  [[nodiscard]] bool reaches_all(std::span<const std::int32_t> plan) const;

  [[nodiscard]] bool changes(std::int32_t i, std::span<const std::int32_t> plan) const {
    const std::int32_t p = previous_clocked_[i];
    return p >= 0 && clock_mhz(p, plan[p]) != clock_mhz(i, plan[i]);
  }
  [[nodiscard]] std::int32_t num_changes(std::span<const std::int32_t> plan) const {
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < graph_.size(); ++i) count += changes(i, plan) ? 1 : 0;
    return count;
  }

 private:
  // `work` where the change to it arrives so late.
  [[nodiscard]] Work changed(std::int32_t i, std::int32_t index, std::int32_t before, TimePs late_ps, const Work& work) const;

  static constexpr double kReachedShare = 0.9;

  const Graph& graph_;
  const Menu& menu_;
  std::span<const TimePs> latency_ps_;
  bool shuns_unreached_;
  std::vector<std::int32_t> previous_clocked_;         // (num_instructions)
  std::vector<std::int32_t> same_clock_begin_;         // (num_instructions)
  std::vector<std::int32_t> same_clock_before_begin_;  // (num_instructions)
  std::vector<std::int32_t>
      same_clock_;  // per pair of curves that meet on a rank: (clocks of the first), (clocks of the second)
};

}  // namespace perseus
