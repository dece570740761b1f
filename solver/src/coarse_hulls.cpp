#include "coarse_hulls.hpp"

namespace perseus {
namespace {

// A line that touches the hull in one of its vertices.
struct Tangent {
  std::int32_t vertex;
  PowerUw slope_uw;  // falling
  EnergyAj at_zero_aj;
};

void append_coarse(const FrontierProblem& p, std::int32_t begin, std::int32_t end, PowerUw quantum_uw, CoarseHulls& coarse) {
  std::vector<Tangent> tangents;
  EnergyAj energy_aj = 0;  // of vertex v above that of the first
  for (std::int32_t v = begin; v < end; ++v) {
    if (v > begin) energy_aj -= static_cast<EnergyAj>(p.slope_uw[v - 1]) * (p.hull_ps[v] - p.hull_ps[v - 1]);
    const PowerUw least = (p.slope_uw[v] + quantum_uw - 1) / quantum_uw * quantum_uw;
    const PowerUw most = v == begin ? least : p.slope_uw[v - 1] / quantum_uw * quantum_uw;
    const auto add = [&](PowerUw slope_uw) {
      if (!tangents.empty() && tangents.back().slope_uw <= slope_uw) return;  // touches both ends of a piece: the same line
      tangents.push_back({v, slope_uw, energy_aj + static_cast<EnergyAj>(slope_uw) * p.hull_ps[v]});
    };
    if (least <= most) add(most), add(least);
  }
  coarse.hull_ps.push_back(p.hull_ps[begin]);
  coarse.slope_uw.push_back(tangents.front().slope_uw);
  for (std::size_t k = 1; k < tangents.size(); ++k) {
    const Tangent &before = tangents[k - 1], &after = tangents[k];
    const auto meet_ps =
        static_cast<TimePs>((before.at_zero_aj - after.at_zero_aj) / (before.slope_uw - after.slope_uw));  // rounded
    if (meet_ps > coarse.hull_ps.back()) {
      coarse.hull_ps.push_back(meet_ps);
      coarse.slope_uw.push_back(after.slope_uw);
    } else {
      coarse.slope_uw.back() = after.slope_uw;
    }
  }
}

}  // namespace

FrontierProblem CoarseHulls::of(const FrontierProblem& problem) const {
  FrontierProblem coarse = problem;
  coarse.hull_begin = hull_begin;
  coarse.hull_ps = hull_ps;
  coarse.slope_uw = slope_uw;
  return coarse;
}

CoarseHulls coarse_hulls(const FrontierProblem& problem, PowerUw quantum_uw) {
  CoarseHulls coarse;
  coarse.hull_begin.push_back(0);
  for (std::size_t c = 0; c + 1 < problem.hull_begin.size(); ++c) {
    append_coarse(problem, problem.hull_begin[c], problem.hull_begin[c + 1], quantum_uw, coarse);
    coarse.hull_begin.push_back(static_cast<std::int32_t>(coarse.hull_ps.size()));
  }
  return coarse;
}

}  // namespace perseus
