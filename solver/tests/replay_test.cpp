#include "perseus/replay.hpp"

#include <cstdlib>

#include "pipelines.hpp"
#include "test.hpp"

namespace perseus::test {
namespace {

using Energies = std::vector<EnergyUj>;

constexpr Point kFast{.clock_mhz = 1400, .duration_ps = 100, .effective_uj = 1000};
constexpr Point kSlow{.clock_mhz = 1000, .duration_ps = 140, .effective_uj = 600};
constexpr Point kConstant{.clock_mhz = 0, .duration_ps = 30, .effective_uj = 5};

// One rank that runs instructions of these curves one after the other.
Pipeline rank_of(const std::vector<std::vector<Point>>& curves) {
  Pipeline pipeline;
  for (const auto& points : curves) pipeline.add(pipeline.add_curve(points), pipeline.size() - 1);
  return pipeline;
}

struct Played {
  Outcome outcome;
  Times duration_ps;
  Energies effective_uj;
};

Played play(const Pipeline& pipeline, const Plan& plan, const Times& latency_ps) {
  const Graph graph = pipeline.problem.graph();
  const Menu menu = pipeline.view();
  Replay replay(graph, menu, latency_ps);
  Played played{.outcome = replay.play(plan), .duration_ps = {}, .effective_uj = replay.effective_uj};
  for (std::int32_t i = 0; i < graph.size(); ++i) played.duration_ps.push_back(replay.end_ps[i] - replay.start_ps[i]);
  return played;
}

Played play(const Pipeline& pipeline, const Plan& plan, TimePs latency_ps) {
  return play(pipeline, plan, same_latency(pipeline, latency_ps));
}

TEST(replay_counts_changes_even_if_they_take_no_time) {
  const Played played = play(rank_of({{kFast, kSlow}, {kFast, kSlow}, {kFast, kSlow}}), {0, 1, 1}, 0);
  CHECK_EQ(played.duration_ps, (Times{100, 140, 140}));
  CHECK_EQ(played.outcome.time_ps, 380);
  CHECK_EQ(played.outcome.effective_uj, 2200);
  CHECK_EQ(played.outcome.num_changes, 1);
}

TEST(replay_takes_the_nearest_clock_where_the_next_curve_lacks_the_old_one) {
  const std::vector<Point> first = {{1500, 100, 1000}, {1300, 120, 800}, {900, 160, 500}};
  const std::vector<Point> second = {{1400, 100, 1000}, {1200, 140, 600}};
  const Pipeline pipeline = rank_of({first, second});
  const auto duration_of_second = [&](const Plan& plan) { return play(pipeline, plan, 50).duration_ps[1]; };
  CHECK_EQ(duration_of_second({0, 1}), 120);  // above all of them: from 1400 MHz, for a half of its duration
  CHECK_EQ(duration_of_second({1, 1}), 120);  // between two and as near to both: from the faster one
  CHECK_EQ(duration_of_second({2, 1}), 140);  // below all of them: 1200 MHz already
}

TEST(replay_runs_what_latency_leaves_at_the_old_clock) {
  const Pipeline pipeline = rank_of({{kFast, kSlow}, {kFast, kSlow}});
  const Played to_slow = play(pipeline, {0, 1}, 25);  // a quarter of the fast duration
  CHECK_EQ(to_slow.duration_ps, (Times{100, 130}));
  CHECK_EQ(to_slow.effective_uj, (Energies{1000, 700}));
  const Played to_fast = play(pipeline, {1, 0}, 70);  // a half of the slow duration
  CHECK_EQ(to_fast.duration_ps, (Times{140, 120}));
  CHECK_EQ(to_fast.effective_uj, (Energies{600, 800}));
  CHECK_EQ(play(pipeline, {1, 1}, 70).duration_ps, (Times{140, 140}));
}

TEST(replay_runs_all_at_the_old_clock_if_latency_outlasts_the_instruction) {
  const Pipeline pipeline = rank_of({{kFast, kSlow}, {kFast, kSlow}, {kFast, kSlow}});
  for (const TimePs latency : {TimePs{140}, TimePs{1'000'000}}) {
    // The third one asks for the clock that it had, and pays for a change all the same: the second asked for another.
    const Played played = play(pipeline, {1, 0, 1}, latency);
    CHECK_EQ(played.duration_ps, (Times{140, 140, 100}));
    CHECK_EQ(played.effective_uj, (Energies{600, 600, 1000}));
    CHECK_EQ(played.outcome.num_changes, 2);
  }
}

TEST(replay_waits_as_long_as_the_clock_asked_for_takes) {
  const Pipeline pipeline = rank_of({{kFast, kSlow}, {kFast, kSlow}, {kFast, kSlow}});
  const Times latency_ps{0, 0, 70, 25, 70, 25};  // of each instruction's fast and slow clock; the first asks for nothing
  const Played played = play(pipeline, {0, 1, 0}, latency_ps);
  CHECK_EQ(played.duration_ps, (Times{100, 130, 120}));  // a quarter of 100 to the slow clock, a half of 140 to the fast one
  CHECK_EQ(played.effective_uj, (Energies{1000, 700, 800}));
}

TEST(replay_hides_latency_in_a_gap) {
  Pipeline pipeline;
  const std::int32_t curve = pipeline.add_curve({kFast, kSlow});
  const std::int32_t other = pipeline.add_curve({{.clock_mhz = 1400, .duration_ps = 130, .effective_uj = 0}});
  pipeline.add(curve, -1);
  pipeline.add(curve, 0);
  pipeline.add_edge(pipeline.add(other, -1), 1);  // the second instruction waits until 130
  CHECK_EQ(play(pipeline, {0, 1, 0}, 30).duration_ps, (Times{100, 140, 130}));
  CHECK_EQ(play(pipeline, {0, 1, 0}, 80).duration_ps, (Times{100, 120, 130}));
}

TEST(replay_hides_latency_behind_constants) {
  const Pipeline pipeline = rank_of({{kConstant}, {kFast, kSlow}, {kConstant}, {kConstant}, {kFast, kSlow}});
  const Played played = play(pipeline, {0, 0, 0, 0, 1}, 60);
  CHECK_EQ(played.duration_ps, (Times{30, 100, 30, 30, 140}));
  CHECK_EQ(played.outcome.num_changes, 1);
  CHECK_EQ(play(pipeline, {0, 0, 0, 0, 1}, 110).duration_ps, (Times{30, 100, 30, 30, 120}));
}

TEST(replay_takes_the_nearest_clock_where_the_old_one_was_not_measured) {
  const std::vector<Point> others{{.clock_mhz = 1300, .duration_ps = 200, .effective_uj = 90},
                                  {.clock_mhz = 1100, .duration_ps = 220, .effective_uj = 80},
                                  {.clock_mhz = 900, .duration_ps = 260, .effective_uj = 70}};
  const Pipeline pipeline = rank_of({{kFast, kSlow}, others});
  CHECK_EQ(play(pipeline, {0, 2}, 50).duration_ps, (Times{100, 245}));   // 1400 is nearest to 1300: a quarter of 200
  CHECK_EQ(play(pipeline, {1, 2}, 110).duration_ps, (Times{140, 240}));  // 1000 is as near to 1100, the higher: a half of 220
  CHECK_EQ(play(pipeline, {0, 0}, 50).outcome.num_changes, 1);           // 1300 is not 1400
  CHECK_EQ(play(pipeline, {0, 0}, 50).duration_ps, (Times{100, 200}));
}

TEST(replay_of_instructions_that_take_no_time) {
  const Point nothing{.clock_mhz = 1400, .duration_ps = 0, .effective_uj = 1};
  const Point little{.clock_mhz = 1000, .duration_ps = 1, .effective_uj = 0};
  const Played played = play(rank_of({{nothing, little}, {nothing, little}}), {0, 1}, 10);
  CHECK_EQ(played.duration_ps, (Times{0, 0}));
  CHECK_EQ(played.outcome.effective_uj, 2);
}

TEST(replay_agrees_with_a_second_opinion) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    note("round " + std::to_string(round));
    const Pipeline pipeline = random_pipeline(random, {.num_ranks = static_cast<std::int32_t>(between(random, 1, 4)),
                                                       .num_microbatches = static_cast<std::int32_t>(between(random, 1, 5)),
                                                       .max_clocks = between(random, 1, 8),
                                                       .with_constants = round % 2 == 0});
    const Times latency = random_latencies(random, pipeline, round % 3 == 0 ? 0 : between(random, 1, 120'000'000'000));
    const Graph graph = pipeline.problem.graph();
    const Menu menu = pipeline.view();
    Replay replay(graph, menu, latency);
    for (int k = 0; k < 3; ++k) {  // one object plays many plans
      const Plan plan = random_plan(random, pipeline);
      const Outcome outcome = replay.play(plan);
      const Replayed second = replay_again(pipeline, plan, latency);
      const auto near = [&](std::int64_t a, std::int64_t b) {
        return std::abs(a - b) <= (round % 3 == 0 ? 0 : pipeline.size());
      };
      CHECK(near(outcome.time_ps, second.outcome.time_ps));
      CHECK(near(outcome.effective_uj, second.outcome.effective_uj));
      CHECK_EQ(outcome.num_changes, second.outcome.num_changes);
      for (std::int32_t i = 0; i < pipeline.size(); ++i) {
        CHECK(near(replay.start_ps[i], second.start_ps[i]));
        CHECK(near(replay.end_ps[i], second.end_ps[i]));
        CHECK(near(replay.effective_uj[i], second.effective_uj[i]));
      }
    }
  }
}

}  // namespace
}  // namespace perseus::test
