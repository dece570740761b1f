// Plans when a clock change takes time: as few changes as pay for themselves, and on time with their latency counted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "candidates.hpp"
#include "perseus/frontier.hpp"
#include "perseus/replay.hpp"

namespace perseus {

// What a clock change must save to be made, as a share of the mean effective energy of an instruction.
inline constexpr double kWorthOfChange = 0.01;

// One object per thread.
class Smoothing {
 public:
  Smoothing(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps);

  // When each instruction may run and what its time is worth; windows of one rank follow each other.
  struct Windows {
    std::span<const TimePs> start_ps, end_ps;  // (num_instructions); without end_ps they are open
    std::span<const PowerUw> price_uw;         // (num_instructions); without it, time within a window is free
  };

  // On each rank the plan of least cost, where no instruction outlasts its window if that can be had. A dynamic programme over
  // (instruction, clock): the clock decides how late the next change comes. Only clocks about those of the plan `near` are tried.
  Plan cheapest(const Windows& windows, std::span<const std::int32_t> near);

  Outcome play(std::span<const std::int32_t> plan) { return replay_.play(plan); }
  [[nodiscard]] double worth_of_change_uj() const { return worth_of_change_uj_; }

 private:
  struct Range {
    std::int32_t first, last;
  };

  void find_ranges(std::span<const std::int32_t> near);

  const Menu& menu_;
  Replay replay_;
  std::vector<Range> range_;                        // (num_instructions): clocks that are tried
  std::vector<std::vector<std::int32_t>> clocked_;  // per rank: its instructions that have a clock, in order
  std::size_t num_neighbours_;
  double worth_of_change_uj_ = 0;
};

}  // namespace perseus
