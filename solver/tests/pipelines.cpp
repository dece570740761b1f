#include "pipelines.hpp"

#include <cstdlib>

namespace perseus::test {

std::int32_t Pipeline::add_curve(const std::vector<Point>& points) {
  std::vector<std::int32_t> by_time(points.size());
  std::iota(by_time.begin(), by_time.end(), 0);
  std::ranges::sort(by_time, {}, [&](std::int32_t k) { return std::pair(points[k].duration_ps, points[k].effective_uj); });
  std::vector<std::int32_t> front;
  for (const std::int32_t k : by_time) {
    if (front.empty() || points[k].effective_uj < points[front.back()].effective_uj) front.push_back(k);
  }
  const auto slope_uw = [&](std::int32_t a, std::int32_t b) {
    const EnergyAj saved = static_cast<EnergyAj>(points[a].effective_uj - points[b].effective_uj) * kAjPerUj;
    return static_cast<PowerUw>(saved / (points[b].duration_ps - points[a].duration_ps));
  };
  std::vector<TimePs> hull_ps;
  std::vector<PowerUw> slopes_uw;
  for (std::size_t at = 0; at + 1 < front.size();) {  // from each vertex on along the steepest line
    std::size_t next = at + 1;
    for (std::size_t k = next; k < front.size(); ++k) {
      if (slope_uw(front[at], front[k]) >= slope_uw(front[at], front[next])) next = k;
    }
    hull_ps.push_back(points[front[at]].duration_ps);
    slopes_uw.push_back(slope_uw(front[at], front[next]));
    at = next;
  }
  hull_ps.push_back(points[front.back()].duration_ps);
  slopes_uw.push_back(0);
  for (const Point& p : points) {
    clock_mhz.push_back(p.clock_mhz);
    duration_ps.push_back(p.duration_ps);
    effective_uj.push_back(p.effective_uj);
  }
  curve_begin.push_back(static_cast<std::int32_t>(clock_mhz.size()));
  choice.insert(choice.end(), front.begin(), front.end());
  choice_begin.push_back(static_cast<std::int32_t>(choice.size()));
  return problem.add_curve(hull_ps, slopes_uw);
}

std::int32_t Pipeline::add(std::int32_t curve, std::int32_t previous, std::int32_t in_microbatch) {
  problem.curve_of.push_back(curve);
  previous_on_rank.push_back(previous);
  microbatch.push_back(in_microbatch);
  if (previous >= 0) add_edge(previous, size() - 1);
  return size() - 1;
}

Point Pipeline::point(std::int32_t i, std::int32_t index) const {
  const std::int32_t k = curve_begin[problem.curve_of[i]] + index;
  return {clock_mhz[k], duration_ps[k], effective_uj[k]};
}

std::int32_t Pipeline::num_clocks(std::int32_t i) const {
  return curve_begin[problem.curve_of[i] + 1] - curve_begin[problem.curve_of[i]];
}

Times same_latency(const Pipeline& pipeline, TimePs latency_ps) { return Times(pipeline.clock_mhz.size(), latency_ps); }

Times random_latencies(Random& random, const Pipeline& pipeline, TimePs most_ps) {
  Times latency_ps;
  for (std::size_t k = 0; k < pipeline.clock_mhz.size(); ++k) latency_ps.push_back(between(random, 0, most_ps));
  return latency_ps;
}

Replayed replay_again(const Pipeline& pipeline, const Plan& plan, const Times& latency_ps) {
  const Graph graph = pipeline.problem.graph();
  Replayed second{.outcome = {},
                  .start_ps = std::vector<TimePs>(plan.size()),
                  .end_ps = std::vector<TimePs>(plan.size()),
                  .effective_uj = std::vector<EnergyUj>(plan.size())};
  for (const std::int32_t i : graph.order) {
    TimePs& start = second.start_ps[i];
    for (const std::int32_t j : graph.predecessors_of(i)) start = std::max(start, second.end_ps[j]);
    Point at = pipeline.point(i, plan[i]);
    std::int32_t p = pipeline.previous_on_rank[i];
    while (p >= 0 && pipeline.point(p, 0).clock_mhz == 0) p = pipeline.previous_on_rank[p];
    if (at.clock_mhz != 0 && p >= 0 && pipeline.point(p, plan[p]).clock_mhz != at.clock_mhz) {
      ++second.outcome.num_changes;
      const std::int32_t before_mhz = pipeline.point(p, plan[p]).clock_mhz;
      Point old = pipeline.point(i, 0);
      for (std::int32_t k = 1; k < pipeline.num_clocks(i); ++k) {  // of two as near, the higher, which comes first
        const Point other = pipeline.point(i, k);
        if (std::abs(other.clock_mhz - before_mhz) < std::abs(old.clock_mhz - before_mhz)) old = other;
      }
      const std::int32_t target = pipeline.curve_begin[pipeline.problem.curve_of[i]] + plan[i];
      const TimePs late = latency_ps[target] - (start - second.end_ps[p]);
      if (late >= old.duration_ps) {
        at = old;
      } else if (late > 0) {
        const auto mix = [&](std::int64_t with_old, std::int64_t with_new) {
          const EnergyAj sum =
              static_cast<EnergyAj>(with_old) * late + static_cast<EnergyAj>(with_new) * (old.duration_ps - late);
          return static_cast<std::int64_t>(sum / old.duration_ps);
        };
        at.duration_ps = mix(old.duration_ps, at.duration_ps);
        at.effective_uj = mix(old.effective_uj, at.effective_uj);
      }
    }
    second.end_ps[i] = start + at.duration_ps;
    second.effective_uj[i] = at.effective_uj;
    second.outcome.time_ps = std::max(second.outcome.time_ps, second.end_ps[i]);
    second.outcome.effective_uj += at.effective_uj;
  }
  return second;
}

Pipeline random_pipeline(Random& random, const PipelineSizes& sizes) {
  constexpr TimePs kMillisecond = 1'000'000'000;
  Pipeline pipeline;
  const std::int32_t constant =
      pipeline.add_curve({{.clock_mhz = 0, .duration_ps = between(random, 1, 5) * kMillisecond, .effective_uj = 7}});
  const auto random_curve = [&] {
    std::vector<Point> points;
    auto clock_mhz = static_cast<std::int32_t>(between(random, 1300, 1410));
    const TimePs fastest = between(random, 20, 60) * kMillisecond;
    const auto num_clocks = between(random, 1, sizes.max_clocks);
    for (std::int64_t k = 0; k < num_clocks; ++k) {
      const TimePs duration = fastest * 1400 / clock_mhz + between(random, 0, kMillisecond);
      const EnergyUj energy =
          std::int64_t{clock_mhz} * clock_mhz * 10 + 18'000 * (1400 - clock_mhz) + between(random, 0, 200'000);
      points.push_back({.clock_mhz = clock_mhz, .duration_ps = duration, .effective_uj = energy});
      clock_mhz -= static_cast<std::int32_t>(between(random, 5, 40));
    }
    return pipeline.add_curve(points);
  };
  std::vector<std::vector<std::int32_t>> forward(sizes.num_ranks), backward(sizes.num_ranks);
  for (std::int32_t rank = 0; rank < sizes.num_ranks; ++rank) {
    const std::int32_t forwards = random_curve(), backwards = random_curve();
    std::int32_t previous = -1;
    const auto run = [&](std::int32_t curve, std::int32_t m) {
      if (sizes.with_constants && between(random, 0, 2) == 0) previous = pipeline.add(constant, previous, m);
      return previous = pipeline.add(curve, previous, m);
    };
    for (std::int32_t m = 0; m < sizes.num_microbatches; ++m) forward[rank].push_back(run(forwards, m));
    for (std::int32_t m = 0; m < sizes.num_microbatches; ++m) backward[rank].push_back(run(backwards, m));
  }
  for (std::int32_t rank = 0; rank + 1 < sizes.num_ranks; ++rank) {
    for (std::int32_t m = 0; m < sizes.num_microbatches; ++m) {
      pipeline.add_edge(forward[rank][m], forward[rank + 1][m]);
      pipeline.add_edge(backward[rank + 1][m], backward[rank][m]);
    }
  }
  return pipeline;
}

Plan random_plan(Random& random, const Pipeline& pipeline) {
  Plan plan;
  for (std::int32_t i = 0; i < pipeline.size(); ++i) {
    plan.push_back(static_cast<std::int32_t>(between(random, 0, pipeline.num_clocks(i) - 1)));
  }
  return plan;
}

}  // namespace perseus::test
