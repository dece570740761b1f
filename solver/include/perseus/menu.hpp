// What each instruction can be told to do: the measured clocks of its curve.
#pragma once

#include <cstdint>
#include <span>

#include "perseus/types.hpp"

namespace perseus {

// Spans must outlive every use. A plan is one index per instruction into the slice of its curve; 0 is the maximum clock.
struct Menu {
  std::span<const std::int32_t> curve_begin;       // (num_curves + 1): where each curve's slice of the clocks begins
  std::span<const std::int32_t> clock_mhz;         // (num_clocks): falling in a slice; a lone 0 for a constant instruction
  std::span<const TimePs> duration_ps;             // (num_clocks)
  std::span<const EnergyUj> effective_uj;          // (num_clocks): energy above waiting for as long
  std::span<const std::int32_t> choice_begin;      // (num_curves + 1)
  std::span<const std::int32_t> choice;            // (num_choices): Pareto-optimal clocks of a curve, from fast to slow
  std::span<const std::int32_t> curve_of;          // (num_instructions)
  std::span<const std::int32_t> previous_on_rank;  // (num_instructions): -1 for the first

  [[nodiscard]] std::int32_t num_curves() const { return static_cast<std::int32_t>(curve_begin.size()) - 1; }
  [[nodiscard]] std::int32_t num_instructions() const { return static_cast<std::int32_t>(curve_of.size()); }
};

}  // namespace perseus
