// Problems that own their arrays: made by hand, or at random with ties everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "perseus/frontier.hpp"
#include "perseus/graph.hpp"

namespace perseus::test {

struct Problem {
  std::vector<std::int32_t> hull_begin{0};
  std::vector<TimePs> hull_ps;
  std::vector<PowerUw> slope_uw;
  std::vector<std::int32_t> curve_of, edge_from, edge_to;

  std::int32_t add_curve(const std::vector<TimePs>& durations_ps, const std::vector<PowerUw>& slopes_uw) {
    hull_ps.insert(hull_ps.end(), durations_ps.begin(), durations_ps.end());
    slope_uw.insert(slope_uw.end(), slopes_uw.begin(), slopes_uw.end());
    hull_begin.push_back(static_cast<std::int32_t>(hull_ps.size()));
    return static_cast<std::int32_t>(hull_begin.size()) - 2;
  }
  // An instruction with a curve of its own; slopes without the last one, which is 0.
  std::int32_t add(const std::vector<TimePs>& durations_ps, std::vector<PowerUw> slopes_uw,
                   std::initializer_list<std::int32_t> predecessors = {}) {
    slopes_uw.push_back(0);
    curve_of.push_back(add_curve(durations_ps, slopes_uw));
    for (const std::int32_t i : predecessors) {
      edge_from.push_back(i);
      edge_to.push_back(size() - 1);
    }
    return size() - 1;
  }

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(curve_of.size()); }
  [[nodiscard]] std::int32_t first(std::int32_t i) const { return hull_begin[curve_of[i]]; }
  [[nodiscard]] std::int32_t last(std::int32_t i) const { return hull_begin[curve_of[i] + 1] - 1; }
  [[nodiscard]] Graph graph() const { return {size(), edge_from, edge_to}; }
  [[nodiscard]] FrontierProblem view() const {
    return {.hull_begin = hull_begin,
            .hull_ps = hull_ps,
            .slope_uw = slope_uw,
            .curve_of = curve_of,
            .edge_from = edge_from,
            .edge_to = edge_to};
  }
};

// 300 down to 100 ps, the second half of which costs more.
inline Problem one_instruction() {
  Problem problem;
  problem.add({100, 200, 300}, {9, 4});
  return problem;
}

using Random = std::mt19937_64;

inline std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

struct ProblemSizes {
  std::int32_t max_instructions;
  std::int64_t max_vertices;  // of a hull; some have a single one
  TimePs max_duration_ps;
  PowerUw max_slope_uw;
};

// Few distinct durations and slopes tie; durations may be 0; instructions share curves, precede each other by any index, and
// may fall apart into unconnected pipelines.
inline Problem random_problem(Random& random, const ProblemSizes& sizes) {
  const auto distinct = [&](std::int64_t low, std::int64_t high, std::int64_t count) {
    std::set<std::int64_t> values;
    for (std::int64_t k = 0; k < count; ++k) values.insert(between(random, low, high));
    return std::vector(values.begin(), values.end());
  };
  Problem problem;
  const auto num_curves = between(random, 1, sizes.max_instructions);
  for (std::int64_t c = 0; c < num_curves; ++c) {
    auto durations = distinct(0, sizes.max_duration_ps, between(random, 1, sizes.max_vertices));
    auto slopes = distinct(1, sizes.max_slope_uw, static_cast<std::int64_t>(durations.size()) - 1);
    durations.resize(slopes.size() + 1);
    slopes.insert(slopes.begin(), 0);
    std::ranges::reverse(slopes);
    problem.add_curve(durations, slopes);
  }
  const auto n = static_cast<std::int32_t>(between(random, 1, sizes.max_instructions));
  for (std::int32_t i = 0; i < n; ++i)
    problem.curve_of.push_back(static_cast<std::int32_t>(between(random, 0, num_curves - 1)));
  std::vector<std::int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  const auto one_in = between(random, 1, std::max(2, n));
  for (std::int32_t a = 0; a < n; ++a) {
    for (std::int32_t b = a + 1; b < n; ++b) {
      if (between(random, 1, one_in) > 1) continue;
      problem.edge_from.push_back(order[a]);
      problem.edge_to.push_back(order[b]);
    }
  }
  return problem;
}

}  // namespace perseus::test
