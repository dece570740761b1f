// Plans when clock changes are free: rounding a relaxed solution, and using the time that rounding leaves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "choices.hpp"
#include "perseus/frontier.hpp"
#include "perseus/replay.hpp"

namespace perseus {

// Works on choices: its plans hold indices into Choices, not clocks. One object per thread.
class Rounding {
 public:
  Rounding(const Graph& graph, const Menu& menu, const Choices& choices);

  // Every instruction gets the cheapest choice that ends within the relaxed solution's window. It may use the time that its
  // predecessors left over, so that rounding errors cancel along a path and do not add up.
  Outcome round(const Sample& sample, Plan& plan, TimePs later_ps = 0);

  // Slows instructions down as far as the deadline allows: those first that save what their time is worth, and of these the
  // early ones, or the late ones.
  Outcome fill(Plan& plan, TimePs deadline_ps, std::span<const PowerUw> price_uw, bool late_first = false);

  Outcome play(std::span<const std::int32_t> plan);

  [[nodiscard]] Plan clocks(std::span<const std::int32_t> plan) const;

 private:
  // The choices of one instruction, close at hand.
  struct Row {
    const TimePs* duration_ps;
    const EnergyUj* effective_uj;
    std::int32_t num_choices;
    std::int32_t curve;
  };

  [[nodiscard]] TimePs start(std::int32_t i) const {
    TimePs start = 0;
    for (const std::int32_t j : graph_.predecessors_of(i)) start = std::max(start, end_ps_[j]);
    return start;
  }
  void slow_down(std::int32_t i, TimePs room_ps, double worth, Plan& plan);
  [[nodiscard]] Outcome outcome(std::span<const std::int32_t> plan) const;

  const Graph& graph_;
  const Choices& choices_;
  std::vector<Row> rows_;                                       // (num_instructions)
  std::vector<TimePs> duration_ps_, end_ps_, latest_start_ps_;  // (num_instructions)
};

}  // namespace perseus
