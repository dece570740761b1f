#include "perseus/realise.hpp"

#include <chrono>
#include <cstdlib>
#include <limits>

#include "certificate.hpp"
#include "pipelines.hpp"
#include "test.hpp"

namespace perseus::test {
namespace {

constexpr TimePs kMillisecond = 1'000'000'000;
constexpr PowerUw kBlockingUw = 80'000'000;

struct Realised {
  FrontierResult frontier;
  std::vector<RealisedPlan> plans;
};

Realised realise_all(const Pipeline& pipeline, const Times& latency_ps, std::int32_t num_samples,
                     const Progress& progress = {}) {
  const Graph graph = pipeline.problem.graph();
  const Menu menu = pipeline.view();
  const PowerUw blocking_uw = kBlockingUw * std::ranges::count(pipeline.previous_on_rank, -1);
  FrontierResult frontier = solve_frontier(
      pipeline.problem.view(), {.blocking_uw = blocking_uw, .num_to_t_star = num_samples, .num_beyond = num_samples / 4});
  auto plans = realise(graph, menu, frontier, pipeline.microbatch, blocking_uw, latency_ps, {}, progress);
  return {std::move(frontier), std::move(plans)};
}

EnergyUj least_uj(const Pipeline& pipeline) {
  EnergyUj least = 0;
  for (std::int32_t i = 0; i < pipeline.size(); ++i) {
    EnergyUj of_instruction = pipeline.point(i, 0).effective_uj;
    for (std::int32_t k = 1; k < pipeline.num_clocks(i); ++k) {
      of_instruction = std::min(of_instruction, pipeline.point(i, k).effective_uj);
    }
    least += of_instruction;
  }
  return least;
}

// What holds for all plans, with latency or without: they ascend in time and fall in energy, play as they say, do not beat the
// bound, and the first is no slower than all-max. Where latency splits instructions, the last digit of each may differ.
void check_plans(const Pipeline& pipeline, const Realised& realised, const Times& latency_ps) {
  CHECK(!realised.plans.empty());
  const FrontierResult& frontier = realised.frontier;
  const EnergyUj least = least_uj(pipeline);
  const std::int64_t digits = std::ranges::max(latency_ps) > 0 ? pipeline.size() : 0;
  const Outcome* before = nullptr;
  for (const auto& [plan, outcome] : realised.plans) {
    CHECK_EQ(plan.size(), pipeline.problem.curve_of.size());
    for (std::int32_t i = 0; i < pipeline.size(); ++i) CHECK(plan[i] >= 0 && plan[i] < pipeline.num_clocks(i));
    const Outcome second = replay_again(pipeline, plan, latency_ps).outcome;
    CHECK(std::abs(outcome.time_ps - second.time_ps) <= digits);
    CHECK(std::abs(outcome.effective_uj - second.effective_uj) <= digits);
    CHECK_EQ(outcome.num_changes, second.num_changes);
    CHECK(before == nullptr || (outcome.time_ps > before->time_ps && outcome.effective_uj < before->effective_uj));
    before = &outcome;
    CHECK(outcome.time_ps >= frontier.time_ps.back());
    const EnergyAj bound = outcome.time_ps < frontier.time_ps.front() ? energy_at(frontier, outcome.time_ps) : 0;
    CHECK(static_cast<EnergyAj>(outcome.effective_uj + digits - least) * kAjPerUj >= bound);
  }
  const TimePs all_max_ps = replay_again(pipeline, Plan(pipeline.size(), 0), latency_ps).outcome.time_ps;
  CHECK(realised.plans.front().outcome.time_ps <= all_max_ps + digits);
}

// Without latency, every time that was sampled has a plan that is on time for it and hardly worse than plain rounding.
void check_unhindered(const Pipeline& pipeline, const Realised& realised) {
  check_plans(pipeline, realised, same_latency(pipeline, 0));
  const FrontierResult& frontier = realised.frontier;
  CHECK_EQ(realised.plans.front().outcome.time_ps, frontier.time_ps.back());
  CHECK(realised.plans.back().outcome.time_ps <= frontier.time_ps.front());
  for (const Sample& sample : frontier.samples) {
    EnergyUj rounded = 0;  // by the cheapest clock of each instruction that fits into its window
    for (std::int32_t i = 0; i < pipeline.size(); ++i) {
      EnergyUj cheapest = std::numeric_limits<EnergyUj>::max();
      for (std::int32_t k = 0; k < pipeline.num_clocks(i); ++k) {
        const Point point = pipeline.point(i, k);
        if (point.duration_ps <= sample.end_ps[i] - sample.start_ps[i]) cheapest = std::min(cheapest, point.effective_uj);
      }
      rounded += cheapest;
    }
    const auto on_time = std::ranges::find_if(realised.plans.rbegin(), realised.plans.rend(),
                                              [&](const RealisedPlan& plan) { return plan.outcome.time_ps <= sample.time_ps; });
    CHECK(on_time != realised.plans.rend());
    CHECK(on_time->outcome.effective_uj <= rounded + rounded / 200);
  }
}

PipelineSizes random_sizes(Random& random, bool with_constants) {
  return {.num_ranks = static_cast<std::int32_t>(between(random, 1, 4)),
          .num_microbatches = static_cast<std::int32_t>(between(random, 1, 4)),
          .max_clocks = between(random, 1, 12),
          .with_constants = with_constants};
}

TEST(realise_without_latency) {
  Random random(6);
  for (int round = 0; round < 60; ++round) {
    note("round " + std::to_string(round));
    const Pipeline pipeline = random_pipeline(random, random_sizes(random, round % 2 == 0));
    check_unhindered(pipeline, realise_all(pipeline, same_latency(pipeline, 0), 20));
  }
}

TEST(realise_with_latency) {
  Random random(7);
  for (int round = 0; round < 8; ++round) {
    note("round " + std::to_string(round));
    const Pipeline pipeline = random_pipeline(random, random_sizes(random, round % 2 == 0));
    const TimePs most_ps = between(random, 1, 60) * kMillisecond;
    const Times latency = round % 2 == 0 ? same_latency(pipeline, most_ps) : random_latencies(random, pipeline, most_ps);
    check_plans(pipeline, realise_all(pipeline, latency, 4), latency);
  }
}

TEST(realise_where_the_clocks_of_a_rank_have_nothing_in_common) {
  Pipeline pipeline;
  const Point at_1400{.clock_mhz = 1400, .duration_ps = 40 * kMillisecond, .effective_uj = 9'000'000};
  const Point at_1000{.clock_mhz = 1000, .duration_ps = 55 * kMillisecond, .effective_uj = 7'000'000};
  const Point at_1300{.clock_mhz = 1300, .duration_ps = 80 * kMillisecond, .effective_uj = 18'000'000};
  const Point at_900{.clock_mhz = 900, .duration_ps = 115 * kMillisecond, .effective_uj = 14'000'000};
  pipeline.add(pipeline.add_curve({at_1400, at_1000}), -1);
  pipeline.add(pipeline.add_curve({at_1300, at_900}), 0);
  check_unhindered(pipeline, realise_all(pipeline, same_latency(pipeline, 0), 4));
  const Times latency = same_latency(pipeline, 10 * kMillisecond);
  check_plans(pipeline, realise_all(pipeline, latency, 4), latency);
}

TEST(realise_without_choices_gives_the_one_plan_there_is) {
  Pipeline pipeline;
  const std::int32_t curve = pipeline.add_curve({{.clock_mhz = 1400, .duration_ps = 100, .effective_uj = 50}});
  pipeline.add(curve, -1);
  pipeline.add(curve, 0);
  pipeline.add(pipeline.add_curve({{.clock_mhz = 0, .duration_ps = 10, .effective_uj = 1}}), 1);
  for (const TimePs latency : {TimePs{0}, TimePs{30}}) {
    const Realised realised = realise_all(pipeline, same_latency(pipeline, latency), 4);
    CHECK_EQ(realised.plans.size(), 1U);
    CHECK_EQ(realised.plans[0].plan, (Plan{0, 0, 0}));
    CHECK_EQ(realised.plans[0].outcome.time_ps, 210);
    CHECK_EQ(realised.plans[0].outcome.effective_uj, 101);
    CHECK_EQ(realised.plans[0].outcome.num_changes, 0);
  }
}

// All-max is the fastest iteration only where time falls with the clock. Here noise makes a lower clock the fastest one.
TEST(realise_knows_that_all_max_may_not_be_fastest) {
  Pipeline pipeline;
  pipeline.add(pipeline.add_curve({{.clock_mhz = 1400, .duration_ps = 101, .effective_uj = 60},
                                   {.clock_mhz = 1385, .duration_ps = 100, .effective_uj = 50},
                                   {.clock_mhz = 1370, .duration_ps = 110, .effective_uj = 40}}),
               -1);
  const Realised realised = realise_all(pipeline, same_latency(pipeline, 0), 4);
  CHECK_EQ(realised.plans.size(), 2U);
  CHECK_EQ(realised.plans[0].plan, Plan{1});
  CHECK_EQ(realised.plans[1].plan, Plan{2});
}

// 64 samples are work for two threads or more where the machine has them.
TEST(realise_gives_the_same_plans_again) {
  Random random(8);
  const Pipeline pipeline =
      random_pipeline(random, {.num_ranks = 4, .num_microbatches = 6, .max_clocks = 30, .with_constants = false});
  const Realised first = realise_all(pipeline, same_latency(pipeline, 0), 64),
                 second = realise_all(pipeline, same_latency(pipeline, 0), 64);
  CHECK_EQ(first.plans.size(), second.plans.size());
  CHECK(first.plans.size() > 10);
  for (std::size_t k = 0; k < first.plans.size(); ++k) CHECK_EQ(first.plans[k].plan, second.plans[k].plan);
}

TEST(progress_of_realising_ascends_from_0_to_1) {
  Random random(9);
  const Pipeline pipeline =
      random_pipeline(random, {.num_ranks = 3, .num_microbatches = 4, .max_clocks = 20, .with_constants = true});
  for (const TimePs latency : {TimePs{0}, 10 * kMillisecond}) {
    std::vector<double> seen;
    realise_all(pipeline, same_latency(pipeline, latency), 20, [&](double done) {
      seen.push_back(done);
      return true;
    });
    CHECK(!seen.empty() && std::ranges::is_sorted(seen) && seen.front() >= 0 && seen.back() <= 1);
    if (latency > 0) CHECK(seen.back() > 0.99);
  }
}

// With so few samples there is one thread; a second one could be done before the first, which reports, has begun.
TEST(realise_is_cancelled_by_its_progress) {
  Random random(9);
  const Pipeline pipeline =
      random_pipeline(random, {.num_ranks = 3, .num_microbatches = 4, .max_clocks = 20, .with_constants = true});
  for (const TimePs latency : {TimePs{0}, 10 * kMillisecond}) {
    int num_calls = 0;
    const auto stop = [&](double done) {
      CHECK(done >= 0 && done <= 1);
      ++num_calls;
      return false;
    };
    CHECK(realise_all(pipeline, same_latency(pipeline, latency), 20, stop).plans.empty());
    CHECK_EQ(num_calls, 1);
    const auto raise = [](double) -> bool { throw std::runtime_error("enough"); };
    CHECK_THROWS(realise_all(pipeline, same_latency(pipeline, latency), 20, raise), "enough");
  }
}

TEST(realise_needs_samples) {
  Random random(10);
  const Pipeline pipeline =
      random_pipeline(random, {.num_ranks = 1, .num_microbatches = 1, .max_clocks = 5, .with_constants = false});
  CHECK_THROWS(realise_all(pipeline, same_latency(pipeline, 0), 0), "no samples to realise");
}

}  // namespace
}  // namespace perseus::test
