#include "choices.hpp"

#include <algorithm>

namespace perseus {

Choices::Choices(const Menu& menu) : menu_(menu) {
  for (std::int32_t curve = 0; curve < menu.num_curves(); ++curve) {
    for (const std::int32_t k : clock(curve)) {
      duration_ps_.push_back(menu.duration_ps[menu.curve_begin[curve] + k]);
      effective_uj_.push_back(menu.effective_uj[menu.curve_begin[curve] + k]);
    }
  }
  vertex_.resize(duration_ps_.size());
  std::vector<std::int32_t> hull;
  for (std::int32_t curve = 0; curve < menu.num_curves(); ++curve) {
    const auto t = duration_ps(curve);
    const auto e = effective_uj(curve);
    hull.clear();
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(t.size()); ++k) {
      const auto is_above = [&](std::int32_t a, std::int32_t b) {  // b, on or above the line from a to k
        return static_cast<EnergyAj>(e[b] - e[a]) * (t[k] - t[b]) >= static_cast<EnergyAj>(e[k] - e[b]) * (t[b] - t[a]);
      };
      while (hull.size() >= 2 && is_above(hull[hull.size() - 2], hull.back())) hull.pop_back();
      hull.push_back(k);
    }
    for (std::size_t v = 0; v < hull.size(); ++v) {
      const std::int32_t end = v + 1 < hull.size() ? hull[v + 1] : static_cast<std::int32_t>(t.size());
      std::fill(vertex_.begin() + menu.choice_begin[curve] + hull[v], vertex_.begin() + menu.choice_begin[curve] + end,
                hull[v]);
    }
  }
}

std::int32_t Choices::cheapest(std::int32_t curve, TimePs available_ps, PowerUw price_uw) const {
  const auto t = duration_ps(curve);
  const auto e = effective_uj(curve);
  const auto v = vertex(curve);
  const auto fits = static_cast<std::int32_t>(std::ranges::upper_bound(t, available_ps) - t.begin()) - 1;
  if (fits < 0) return -1;
  const auto is_cheaper = [&](std::int32_t a, std::int32_t b) {  // a is the faster one
    return static_cast<EnergyAj>(e[a] - e[b]) * kAjPerUj < static_cast<EnergyAj>(price_uw) * (t[b] - t[a]);
  };
  // On the hull the cost falls and then rises, so that a faster vertex is tried only while it is an improvement.
  std::int32_t best = v[fits];
  while (best > 0 && is_cheaper(v[best - 1], best)) best = v[best - 1];
  if (best != v[fits]) return best;
  for (std::int32_t k = best + 1; k <= fits; ++k) {
    if (!is_cheaper(best, k)) best = k;
  }
  return best;
}

}  // namespace perseus
