// The frontier as a function: the least effective energy of any execution within a given time.
#pragma once

#include <algorithm>

#include "choices.hpp"
#include "perseus/frontier.hpp"

namespace perseus {

class Bound {
 public:
  Bound(const Menu& menu, const Choices& choices, const FrontierResult& frontier, PowerUw blocking_uw)
      : frontier_(frontier), blocking_uw_(blocking_uw) {
    for (const std::int32_t curve : menu.curve_of) least_uj_ += choices.effective_uj(curve).back();
  }

  // Energy that a plan costs above the bound if everybody waits until time_ps, as a share of the bound.
  [[nodiscard]] double gap(EnergyUj effective_uj, TimePs time_ps) const {
    const double waiting_uj = static_cast<double>(static_cast<EnergyAj>(blocking_uw_) * time_ps / kAjPerUj);
    const double bound_uj = effective_at(time_ps) + waiting_uj;
    return (static_cast<double>(effective_uj) + waiting_uj) / bound_uj - 1;
  }

  // Energy that a little more time saves.
  [[nodiscard]] PowerUw slope_at(TimePs time_ps) const {
    const auto& t = frontier_.time_ps;
    const auto k = std::ranges::lower_bound(t, time_ps, std::greater{}) - t.begin();
    return k == 0 ? 0 : frontier_.slope_uw[static_cast<std::size_t>(k) - 1];
  }

 private:
  [[nodiscard]] double effective_at(TimePs time_ps) const {
    const auto& t = frontier_.time_ps;
    const auto after = std::ranges::lower_bound(t, time_ps, std::greater{}) - t.begin();  // first vertex not later
    if (after == 0) return static_cast<double>(least_uj_);
    const auto k = static_cast<std::size_t>(after) - 1;
    const EnergyAj above = frontier_.energy_aj[k] + static_cast<EnergyAj>(frontier_.slope_uw[k]) * (t[k] - time_ps);
    return static_cast<double>(least_uj_) + static_cast<double>(above / kAjPerUj);
  }

  const FrontierResult& frontier_;
  PowerUw blocking_uw_;
  EnergyUj least_uj_ = 0;
};

}  // namespace perseus
