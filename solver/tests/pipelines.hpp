// Pipelines of measured curves that own their arrays, and a second opinion on how they play.
#pragma once

#include "perseus/menu.hpp"
#include "perseus/replay.hpp"
#include "problems.hpp"

namespace perseus::test {

struct Point {
  std::int32_t clock_mhz;
  TimePs duration_ps;
  EnergyUj effective_uj;
};

// A menu with its precedence, and the hulls of the same curves as a problem to solve.
struct Pipeline {
  std::vector<std::int32_t> curve_begin{0}, clock_mhz;
  std::vector<TimePs> duration_ps;
  std::vector<EnergyUj> effective_uj;
  std::vector<std::int32_t> choice_begin{0}, choice, previous_on_rank, microbatch;
  Problem problem;

  std::int32_t add_curve(const std::vector<Point>& points);
  // The next instruction of a rank whose last one is `previous`, -1 for none.
  std::int32_t add(std::int32_t curve, std::int32_t previous, std::int32_t in_microbatch = 0);
  void add_edge(std::int32_t from, std::int32_t to) {
    problem.edge_from.push_back(from);
    problem.edge_to.push_back(to);
  }

  [[nodiscard]] std::int32_t size() const { return problem.size(); }
  [[nodiscard]] Point point(std::int32_t i, std::int32_t index) const;
  [[nodiscard]] std::int32_t num_clocks(std::int32_t i) const;
  [[nodiscard]] Menu view() const {
    return {.curve_begin = curve_begin,
            .clock_mhz = clock_mhz,
            .duration_ps = duration_ps,
            .effective_uj = effective_uj,
            .choice_begin = choice_begin,
            .choice = choice,
            .curve_of = problem.curve_of,
            .previous_on_rank = previous_on_rank};
  }
};

struct Replayed {
  Outcome outcome;
  std::vector<TimePs> start_ps, end_ps;
  std::vector<EnergyUj> effective_uj;
};

using Times = std::vector<TimePs>;

// The same latency for every clock of a pipeline, or one of its own for each, up to `most_ps`.
Times same_latency(const Pipeline& pipeline, TimePs latency_ps);
Times random_latencies(Random& random, const Pipeline& pipeline, TimePs most_ps);

// The model of replay.hpp once more, in whole numbers; where latency splits an instruction, the last digit may differ.
Replayed replay_again(const Pipeline& pipeline, const Plan& plan, const Times& latency_ps);

struct PipelineSizes {
  std::int32_t num_ranks, num_microbatches;
  std::int64_t max_clocks;  // of a curve
  bool with_constants;      // between the instructions
};

// All forwards, then all backwards on each rank; curves are noisy, so that clocks off the hull and dominated ones abound, and
// each has its own list of clocks.
Pipeline random_pipeline(Random& random, const PipelineSizes& sizes);

Plan random_plan(Random& random, const Pipeline& pipeline);

}  // namespace perseus::test
