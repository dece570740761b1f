#include "perseus/frontier.hpp"

#include <chrono>
#include <stdexcept>
#include <utility>

#include "certificate.hpp"
#include "test.hpp"

namespace perseus::test {
namespace {

using Times = std::vector<TimePs>;
using Powers = std::vector<PowerUw>;
using Energies = std::vector<EnergyAj>;

// A frontier that was worked out by hand, and the proof of it.
void expect(const Problem& problem, const Times& time_ps, const Powers& slope_uw, const Energies& energy_aj) {
  const FrontierResult frontier = solve_frontier(problem.view(), {});
  CHECK_EQ(frontier.time_ps, time_ps);
  CHECK_EQ(frontier.slope_uw, slope_uw);
  CHECK_EQ(frontier.energy_aj, energy_aj);
  CHECK(frontier.samples.empty() && !frontier.cancelled);
  certify_everywhere(problem);
}

Times sample_times(const FrontierResult& frontier) {
  Times times;
  for (const Sample& sample : frontier.samples) times.push_back(sample.time_ps);
  return times;
}

TEST(frontier_of_one_instruction_is_its_curve) { expect(one_instruction(), {300, 200, 100}, {4, 9, 0}, {0, 400, 1300}); }

TEST(frontier_of_a_series_shortens_the_cheaper_one_first) {
  Problem problem;
  problem.add({10, 20}, {5});
  problem.add({10, 30}, {3}, {0});
  expect(problem, {50, 30, 20}, {3, 5, 0}, {0, 60, 110});
}

TEST(frontier_of_unconnected_instructions_shortens_all_that_are_longest) {
  Problem problem;
  problem.add({10, 20}, {5});
  problem.add({10, 30}, {3});
  expect(problem, {30, 20, 10}, {3, 8, 0}, {0, 30, 110});
}

TEST(frontier_of_a_diamond) {
  Problem problem;
  problem.add({10, 20}, {4});
  problem.add({10, 20}, {3}, {0});
  problem.add({5, 15}, {2}, {0});
  problem.add({10, 20}, {6}, {1, 2});
  expect(problem, {60, 55, 45, 40, 30}, {3, 4, 5, 6, 0}, {0, 15, 55, 80, 140});
}

//  0 -> 1 -> 3     0, 1, 3 is the longest path at first, and 1 the cheapest to shorten on it. Then 2, 3 and 0, 4 are as long, so
//  2 ------> 3     that 0 and 3 must both give, and 1 may take its time again: flow is sent back through it.
//  0 ------> 4
TEST(frontier_lengthens_an_instruction_that_was_shortened_before) {
  Problem problem;
  problem.add({0, 10}, {5});
  problem.add({0, 10}, {1}, {0});
  problem.add({10}, {});
  problem.add({0, 10}, {5}, {1, 2});
  problem.add({10}, {}, {0});
  expect(problem, {30, 20, 10}, {1, 9, 0}, {0, 10, 100});
  const FrontierResult frontier = solve_frontier(problem.view(), {.extra_ps = Times{20, 10}});
  const auto window = [&](std::size_t s) { return frontier.samples[s].end_ps[1] - frontier.samples[s].start_ps[1]; };
  CHECK_EQ(window(0), 0);
  CHECK_EQ(window(1), 10);
}

TEST(frontier_without_choices_is_a_point) {
  Problem problem;
  problem.add({10}, {});
  problem.add({7}, {}, {0});
  problem.add({20}, {});
  expect(problem, {20}, {0}, {0});
  const FrontierResult frontier =
      solve_frontier(problem.view(), {.blocking_uw = 5, .num_to_t_star = 3, .num_beyond = 3, .extra_ps = Times{21, 20, 19}});
  CHECK_EQ(sample_times(frontier), Times{20});
  CHECK_EQ(frontier.t_star_ps, 20);
}

TEST(frontier_with_one_instruction_that_has_a_choice) {
  Problem problem;
  problem.add({10}, {});
  problem.add({1, 5}, {2}, {0});
  problem.add({12}, {});
  expect(problem, {15, 12}, {2, 0}, {0, 6});
}

TEST(frontier_may_end_at_no_time_at_all) {
  Problem problem;
  problem.add({0, 10}, {3});
  problem.add({0}, {}, {0});
  problem.add({0, 5}, {3}, {1});
  expect(problem, {15, 0}, {3, 0}, {0, 45});
  const FrontierResult frontier = solve_frontier(problem.view(), {.num_to_t_star = 4, .extra_ps = Times{0}});
  CHECK_EQ(sample_times(frontier), (Times{15, 8, 3, 0}));
}

TEST(frontier_of_nothing_that_takes_time) {
  Problem problem;
  problem.add({0}, {});
  problem.add({0}, {}, {0});
  expect(problem, {0}, {0}, {0});
}

TEST(frontier_of_many_equal_instructions) {
  Problem problem;
  const std::int32_t curve = problem.add_curve({1, 2, 3}, {2, 1, 0});
  for (std::int32_t i = 0; i < 100; ++i) {  // 10 layers of 10, each instruction after all of the layer before
    problem.curve_of.push_back(curve);
    for (std::int32_t j = i / 10 * 10 - 10; j >= 0 && j < i / 10 * 10; ++j) {
      problem.edge_from.push_back(j);
      problem.edge_to.push_back(i);
    }
  }
  expect(problem, {30, 20, 10}, {10, 20, 0}, {0, 100, 300});
}

TEST(frontier_counts_in_128_bits) {
  constexpr TimePs kHour = 3600 * TimePs{1'000'000'000'000};
  constexpr PowerUw kSteep = 100'000'000'000'000;
  Problem problem;
  for (int k = 0; k < 200; ++k) problem.add({kHour, kHour + 1, 2 * kHour + 1}, {kSteep, kSteep - 1});
  const EnergyAj hour = static_cast<EnergyAj>(200 * (kSteep - 1)) * kHour;
  CHECK(hour > static_cast<EnergyAj>(1) << 100);
  expect(problem, {2 * kHour + 1, kHour + 1, kHour}, {200 * (kSteep - 1), 200 * kSteep, 0}, {0, hour, hour + 200 * kSteep});
}

TEST(frontier_tells_a_slope_of_one_from_one_of_1e14) {
  Problem problem;
  problem.add({1, 2, 1'000'000'000'000}, {100'000'000'000'000, 1});
  problem.add({0, 500}, {2}, {0});
  expect(problem, {1'000'000'000'500, 502, 2, 1}, {1, 2, 100'000'000'000'000, 0},
         {0, 999'999'999'998, 1'000'000'000'998, 100'000'000'000'000 + 1'000'000'000'998});
}

TEST(frontier_equals_enumeration_on_tiny_problems) {
  Random random(2);
  for (int round = 0; round < 1500; ++round) {
    note("round " + std::to_string(round));
    const Problem problem =
        random_problem(random, {.max_instructions = 5, .max_vertices = 4, .max_duration_ps = 3, .max_slope_uw = 6});
    const FrontierResult frontier = solve_frontier(problem.view(), {});
    check_shape(problem, frontier);
    for (TimePs time = frontier.time_ps.back(); time <= frontier.time_ps.front(); ++time) {
      CHECK_EQ(energy_at(frontier, time), least_energy_by_enumeration(problem, time));
    }
    CHECK(least_energy_by_enumeration(problem, frontier.time_ps.back() - 1) < 0);
  }
}

TEST(frontier_is_certified_on_random_problems) {
  const auto stop = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (std::uint64_t seed = 0; seed < 100 || std::chrono::steady_clock::now() < stop; ++seed) {
    note("seed " + std::to_string(seed));
    Random random(seed);
    const bool tied = seed % 2 == 0;
    certify_everywhere(random_problem(random, {.max_instructions = tied ? 40 : 12,
                                               .max_vertices = between(random, 1, 8),
                                               .max_duration_ps = tied ? 6 : 1'000'000'000'000,
                                               .max_slope_uw = tied ? 8 : 100'000'000'000'000}));
  }
}

TEST(sampling_gets_closer_towards_t_min) {
  const FrontierResult frontier = solve_frontier(one_instruction().view(), {.blocking_uw = 5, .num_to_t_star = 5});
  CHECK_EQ(frontier.t_star_ps, 200);
  CHECK_EQ(sample_times(frontier), (Times{200, 165, 135, 113, 100}));
  CHECK_EQ(sample_times(solve_frontier(one_instruction().view(), {.blocking_uw = 5, .num_to_t_star = 1})), Times{200});
}

TEST(sampling_goes_on_beyond_t_star) {
  const FrontierResult frontier =
      solve_frontier(one_instruction().view(), {.blocking_uw = 5, .num_to_t_star = 2, .num_beyond = 4});
  CHECK_EQ(sample_times(frontier), (Times{300, 250, 200, 100}));
}

TEST(sampling_finds_t_star_at_either_end) {
  CHECK_EQ(solve_frontier(one_instruction().view(), {.blocking_uw = 0}).t_star_ps, 300);
  CHECK_EQ(solve_frontier(one_instruction().view(), {.blocking_uw = 4}).t_star_ps, 300);
  CHECK_EQ(solve_frontier(one_instruction().view(), {.blocking_uw = 9}).t_star_ps, 200);
  CHECK_EQ(solve_frontier(one_instruction().view(), {.blocking_uw = 10}).t_star_ps, 100);
}

TEST(sampling_takes_the_extra_times_within_the_frontier) {
  const Problem problem = one_instruction();
  const Times extra{999, 301, 300, 222, 200, 137, 100, 99, 0};
  const FrontierResult frontier = solve_frontier(problem.view(), {.blocking_uw = 5, .num_to_t_star = 3, .extra_ps = extra});
  CHECK_EQ(sample_times(frontier), (Times{300, 222, 200, 137, 135, 100}));
  for (const Sample& sample : frontier.samples) certify(problem, frontier, sample);
}

TEST(sampling_on_a_grid_is_certified) {
  Random random(3);
  for (int round = 0; round < 100; ++round) {
    note("round " + std::to_string(round));
    const Problem problem =
        random_problem(random, {.max_instructions = 20, .max_vertices = 6, .max_duration_ps = 1000, .max_slope_uw = 1000});
    const PowerUw blocking_uw = between(random, 0, 2000);
    const FrontierResult frontier =
        solve_frontier(problem.view(), {.blocking_uw = blocking_uw, .num_to_t_star = 9, .num_beyond = 5});
    const Times times = sample_times(frontier);
    CHECK(std::ranges::is_sorted(times, std::greater_equal{}));  // strictly
    CHECK(std::ranges::count(times, frontier.t_star_ps) == 1);
    CHECK_EQ(times.back(), frontier.time_ps.back());
    CHECK(frontier.t_star_ps == frontier.time_ps.front() || times.front() == frontier.time_ps.front());
    for (const Sample& sample : frontier.samples) certify(problem, frontier, sample);
    const auto total = [&](TimePs time) { return energy_at(frontier, time) + static_cast<EnergyAj>(blocking_uw) * time; };
    for (const TimePs time : frontier.time_ps) CHECK(total(frontier.t_star_ps) <= total(time));
  }
}

Problem long_problem() {
  Random random(4);
  Problem problem;
  for (std::int32_t i = 0; i < 400; ++i) {
    std::vector<TimePs> durations{between(random, 1'000, 2'000)};
    std::vector<PowerUw> slopes;
    for (PowerUw slope = 1'000'000; slopes.size() < 40; slope -= between(random, 1, 20'000)) {
      durations.push_back(durations.back() + between(random, 1, 1'000));
      slopes.push_back(slope);
    }
    problem.add(durations, slopes);
    if (i >= 8) {
      for (const std::int32_t j : {i - 8, i / 8 * 8 - 8 + (i + 1) % 8}) {
        problem.edge_from.push_back(j);
        problem.edge_to.push_back(i);
      }
    }
  }
  return problem;
}

TEST(progress_ascends_from_0_to_1) {
  std::vector<double> seen;
  const FrontierResult frontier = solve_frontier(long_problem().view(), {}, [&](double done) {
    seen.push_back(done);
    return true;
  });
  CHECK(!frontier.cancelled && !seen.empty());
  CHECK(std::ranges::is_sorted(seen) && seen.front() >= 0 && seen.back() <= 1);
}

TEST(progress_cancels) {
  int num_calls = 0;
  const FrontierResult frontier = solve_frontier(long_problem().view(), {}, [&](double) {
    ++num_calls;
    return false;
  });
  CHECK(frontier.cancelled);
  CHECK_EQ(num_calls, 1);
}

TEST(progress_lets_exceptions_through) {
  const auto raise = [](double) -> bool { throw std::runtime_error("enough"); };
  CHECK_THROWS(solve_frontier(long_problem().view(), {}, raise), "enough");
}

}  // namespace
}  // namespace perseus::test
