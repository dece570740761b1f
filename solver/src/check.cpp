#include "check.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace perseus {

void check(const FrontierProblem& p) {
  const auto fail = [](std::size_t curve, const char* what) {
    throw std::invalid_argument("curve " + std::to_string(curve) + ": " + what);
  };
  if (p.curve_of.empty()) throw std::invalid_argument("no instructions");
  if (p.hull_begin.size() < 2 || p.hull_ps.size() != p.slope_uw.size() || p.hull_begin.front() != 0 ||
      static_cast<std::size_t>(p.hull_begin.back()) != p.hull_ps.size()) {
    throw std::invalid_argument("hull_begin does not cover hull_ps and slope_uw");
  }
  for (std::size_t c = 0; c + 1 < p.hull_begin.size(); ++c) {
    if (p.hull_begin[c + 1] <= p.hull_begin[c]) fail(c, "its hull has no vertex");
  }
  for (std::size_t c = 0; c + 1 < p.hull_begin.size(); ++c) {
    const std::int32_t begin = p.hull_begin[c], end = p.hull_begin[c + 1];
    if (p.hull_ps[begin] < 0) fail(c, "its duration is negative");
    if (p.slope_uw[end - 1] != 0) fail(c, "the last slope of its hull is not 0");
    for (std::int32_t k = begin; k + 1 < end; ++k) {
      if (p.hull_ps[k + 1] <= p.hull_ps[k]) fail(c, "the durations of its hull do not ascend");
      if (p.slope_uw[k + 1] >= p.slope_uw[k]) fail(c, "the slopes of its hull do not fall");
    }
  }
  EnergyAj time_ps = 0, slope_uw = 0;  // that no longest path and no flow exceeds
  for (std::size_t i = 0; i < p.curve_of.size(); ++i) {
    if (p.curve_of[i] < 0 || static_cast<std::size_t>(p.curve_of[i]) + 1 >= p.hull_begin.size()) {
      throw std::invalid_argument("instruction " + std::to_string(i) + " has no curve");
    }
    time_ps += p.hull_ps[p.hull_begin[p.curve_of[i] + 1] - 1];
    slope_uw += p.slope_uw[p.hull_begin[p.curve_of[i]]];
  }
  if (std::max(time_ps, slope_uw) > std::numeric_limits<std::int64_t>::max() / 2) {
    throw std::invalid_argument("durations or slopes add up to more than 64 bits hold");
  }
}

}  // namespace perseus
