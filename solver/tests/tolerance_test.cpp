#include <cmath>
#include <cstdlib>

#include "certificate.hpp"
#include "coarse_hulls.hpp"
#include "perseus/frontier.hpp"
#include "sandwich.hpp"
#include "test.hpp"

namespace perseus::test {
namespace {

using Times = std::vector<TimePs>;

constexpr EnergyUj kLeastUj = 3'000'000'000;
constexpr PowerUw kBlockingUw = 80'000'000;
constexpr Sampling kSampling{.blocking_uw = kBlockingUw, .num_to_t_star = 9, .num_beyond = 5};

Problem pipeline_problem(Random& random) {
  return random_problem(random, {.max_instructions = 40,
                                 .max_vertices = between(random, 1, 60),
                                 .max_duration_ps = 200'000'000'000,
                                 .max_slope_uw = 1'000'000'000});
}

EnergyAj energy_or_none_at(const FrontierResult& frontier, TimePs time_ps) {
  return time_ps >= frontier.time_ps.front() ? 0 : energy_at(frontier, time_ps);
}

// [aJ] that a share of the total energy makes, and the rounding of energies to microjoules.
EnergyAj slack_aj(double share, EnergyAj energy_aj, TimePs time_ps) {
  const double total = static_cast<double>(kLeastUj) * static_cast<double>(kAjPerUj) + static_cast<double>(energy_aj) +
                       static_cast<double>(kBlockingUw) * static_cast<double>(time_ps);
  return static_cast<EnergyAj>(share * total) + 3 * kAjPerUj;
}

EnergyAj energy_of(const Problem& problem, const Sample& sample) {
  EnergyAj energy = 0;
  for (std::int32_t i = 0; i < problem.size(); ++i) {
    const TimePs duration = sample.end_ps[i] - sample.start_ps[i];
    CHECK(duration >= problem.hull_ps[problem.first(i)]);
    for (std::int32_t k = problem.first(i); k < problem.last(i); ++k) {
      const TimePs shorter = problem.hull_ps[k + 1] - std::clamp(duration, problem.hull_ps[k], problem.hull_ps[k + 1]);
      energy += static_cast<EnergyAj>(problem.slope_uw[k]) * shorter;
    }
  }
  return energy;
}

TEST(tolerance_encloses_the_exact_frontier) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    note("seed " + std::to_string(seed));
    Random random(seed);
    const Problem problem = pipeline_problem(random);
    const FrontierResult exact = solve_frontier(problem.view(), kSampling);
    const double share = seed % 3 == 0 ? 1.0 : seed % 3 == 1 ? 1e-3 : 1e-4;
    const FrontierResult within = solve_frontier_within(problem.view(), kSampling, {.share = share, .least_uj = kLeastUj});
    CHECK(within.share_below <= share);
    CHECK_EQ(within.time_ps.back(), exact.time_ps.back());
    CHECK(std::ranges::is_sorted(within.time_ps, std::greater_equal{}));
    Times times = exact.time_ps;
    times.insert(times.end(), within.time_ps.begin(), within.time_ps.end());
    for (const TimePs time : times) {
      const EnergyAj below = energy_or_none_at(within, time), truth = energy_or_none_at(exact, time);
      CHECK(below <= truth + 3 * kAjPerUj);
      CHECK(truth <= below + slack_aj(within.share_below, below, time));
    }
    for (const Sample& sample : within.samples) {
      for (std::size_t e = 0; e < problem.edge_from.size(); ++e) {
        CHECK(sample.end_ps[problem.edge_from[e]] <= sample.start_ps[problem.edge_to[e]]);
      }
      CHECK(std::ranges::min(sample.start_ps) >= 0 && std::ranges::max(sample.end_ps) <= sample.time_ps);
      const EnergyAj below = energy_or_none_at(within, sample.time_ps);
      CHECK(energy_of(problem, sample) <= below + slack_aj(within.share_below, below, sample.time_ps));
    }
    CHECK_EQ(within.samples.back().time_ps, exact.time_ps.back());
  }
}

TEST(tolerance_is_the_same_again) {
  Random random(5);
  const Problem problem = pipeline_problem(random);
  const auto solve = [&] { return solve_frontier_within(problem.view(), kSampling, {.least_uj = kLeastUj}); };
  const FrontierResult one = solve(), other = solve();
  CHECK(one.time_ps == other.time_ps && one.energy_aj == other.energy_aj && one.sample_values == other.sample_values);
}

TEST(tolerance_of_constants_alone) {
  Problem problem;
  problem.add({10}, {});
  problem.add({20}, {}, {0});
  const FrontierResult within = solve_frontier_within(problem.view(), kSampling, {.least_uj = kLeastUj});
  CHECK_EQ(within.time_ps, Times{30});
  CHECK(within.share_below == 0);
}

TEST(tolerance_is_cancelled) {
  // Progress is asked for every few thousand steps of a trace: small problems end before.
  Problem large;
  for (int k = 0; k < 3000; ++k) {
    if (k % 30 == 0) {
      large.add({100'000'000, 200'000'000, 300'000'000}, {9000 + k, 4000 - k / 2});
    } else {
      large.add({100'000'000, 200'000'000, 300'000'000}, {9000 + k, 4000 - k / 2}, {k - 1});
    }
  }
  int num_calls = 0;
  const FrontierResult within = solve_frontier_within(large.view(), {}, {.share = 1e-9, .least_uj = 1}, [&](double) {
    ++num_calls;
    return false;
  });
  CHECK(within.cancelled && num_calls >= 1);
}

TEST(coarse_hulls_touch_from_below) {
  Random random(7);
  for (int k = 0; k < 200; ++k) {
    const Problem problem = pipeline_problem(random);
    const PowerUw quantum = between(random, 1'000'000, 700'000'000);
    const CoarseHulls coarse = coarse_hulls(problem.view(), quantum);
    for (std::size_t c = 0; c + 1 < coarse.hull_begin.size(); ++c) {
      const std::int32_t begin = coarse.hull_begin[c], end = coarse.hull_begin[c + 1];
      CHECK_EQ(coarse.hull_ps[begin], problem.hull_ps[problem.hull_begin[c]]);
      CHECK(coarse.hull_ps[end - 1] <= problem.hull_ps[problem.hull_begin[c + 1] - 1]);
      CHECK_EQ(coarse.slope_uw[end - 1], 0);
      for (std::int32_t v = begin; v < end; ++v) {
        CHECK_EQ(coarse.slope_uw[v] % quantum, 0);
        CHECK(v == begin || (coarse.hull_ps[v] > coarse.hull_ps[v - 1] && coarse.slope_uw[v] < coarse.slope_uw[v - 1]));
      }
    }
  }
}

}  // namespace
}  // namespace perseus::test
