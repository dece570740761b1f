// The Pareto-optimal clocks of every curve, side by side in memory, with their convex hull.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/menu.hpp"

namespace perseus {

class Choices {
  template <class Values>
  [[nodiscard]] auto slice(const Values& values, std::int32_t curve) const {
    return std::span(values).subspan(menu_.choice_begin[curve], menu_.choice_begin[curve + 1] - menu_.choice_begin[curve]);
  }

 public:
  explicit Choices(const Menu& menu);

  // Of one curve: durations ascending, energies falling.
  [[nodiscard]] std::span<const TimePs> duration_ps(std::int32_t curve) const { return slice(duration_ps_, curve); }
  [[nodiscard]] std::span<const EnergyUj> effective_uj(std::int32_t curve) const { return slice(effective_uj_, curve); }
  // Of each choice: the slowest hull vertex that is not slower.
  [[nodiscard]] std::span<const std::int32_t> vertex(std::int32_t curve) const { return slice(vertex_, curve); }
  // Of each choice: index of its clock in the menu's slice.
  [[nodiscard]] std::span<const std::int32_t> clock(std::int32_t curve) const { return slice(menu_.choice, curve); }

  // The cheapest choice no longer than `available_ps` when time is worth `price_uw`; among equals the slowest. -1: none fits.
  [[nodiscard]] std::int32_t cheapest(std::int32_t curve, TimePs available_ps, PowerUw price_uw) const;

 private:
  const Menu& menu_;
  std::vector<TimePs> duration_ps_;
  std::vector<EnergyUj> effective_uj_;
  std::vector<std::int32_t> vertex_;
};

}  // namespace perseus
