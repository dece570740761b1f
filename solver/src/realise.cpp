#include "perseus/realise.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <random>
#include <stdexcept>

#include "beam.hpp"
#include "bound.hpp"
#include "candidates.hpp"
#include "choices.hpp"
#include "meter.hpp"
#include "parallel.hpp"
#include "rounding.hpp"
#include "smoothing.hpp"
#include "sweeps.hpp"

namespace perseus {
namespace {

// Gaps to the bound, as shares of it. A plan closer than the first is left as it is. Where none is further off than the
// second, the profile is smooth and a single round of joining will do; else every plan that is not close is searched for a
// better one until it is as close as the third.
constexpr double kCloseEnough = 0.002;
constexpr double kFarOff = 0.0025;
constexpr double kSearched = 0.001;
// Relaxed solutions that a plan is rounded from: its own, and those for the next shorter times, later by the difference.
constexpr std::size_t kRoundedFrom = 4;
// Rounds of joining, where the first puts new plans on the hull, and of crossing; while the mean gap is wider than a share, there are
// more of these. Crossings of a plan in one round, how many partial plans and results of each are kept, how many instructions all
// crossings of a plan may take, and to how many samples and hull plans on either side they look.
constexpr int kJoinRounds = 2;
constexpr int kCrossRounds = 4;
constexpr int kMoreCrossRounds = 12;
constexpr double kMeanFarOff = 0.0013;
constexpr int kCrossings = 4;
constexpr std::int32_t kBeamWidth = 8;
constexpr std::size_t kCrossed = 2;
constexpr std::int64_t kMostCrossed = 12'000;
constexpr std::size_t kReach = 40;
constexpr std::size_t kHullReach = 4;
// The same without edges' flows, in trials (few where there is little to try, and where each costs much).
constexpr int kSearchRounds = 12;
constexpr std::size_t kFewTrials = 200;
constexpr std::size_t kTrialsPerInstruction = 3;
constexpr std::size_t kTrialsTimesInstructions = 80'000;
// With latency: moves in a pass at a deadline, likewise; so many times more where a plan is wanted, and where deadlines are fewer than
// so many, since each has less from its neighbours. Plans are joined after every so many passes.
constexpr std::int64_t kFewestMoves = 100;
constexpr double kMovesPerInstruction = 2.1;
constexpr std::int64_t kMovesTimesInstructions = 250'000;
constexpr std::int64_t kMoreMovesWhereWanted = 75;
constexpr std::size_t kManyDeadlines = 256;
constexpr std::size_t kMoreMovesOfFew = 16;
constexpr int kPassesPerJoin = 2;
// Every so-manieth deadline, where they are many, gets plans of its own to begin with.
constexpr std::size_t kDeadlinesPerStart = 4;
// Estimates of work [ns] for each instruction of a sample: rounding, joining once, crossing, and, for each pair of clocks,
// smoothing. Of a move, for the square root of the number of instructions. They say how far a computation is, nothing else.
constexpr double kRoundingWork = 100;
constexpr double kJoinWork = 100;
constexpr double kJoinWithLatencyWork = 450;
constexpr double kCrossWork = 200;
constexpr double kSmoothingWork = 3;
constexpr std::int32_t kClocksTried = 15;
constexpr double kMoveWork = 20;

// Times at which plans are wanted, the relaxed solution at each, and what they are judged by.
struct Task {
  const Graph& graph;
  const Menu& menu;
  const FrontierResult& frontier;
  Choices choices;
  Bound bound;
  std::vector<std::vector<std::int32_t>> orders;
  std::span<const std::int32_t> microbatch;

  [[nodiscard]] std::size_t size() const { return frontier.samples.size(); }
  // Of all samples, where it takes so many nanoseconds for an instruction of one.
  [[nodiscard]] double work(double ns) const { return ns * static_cast<double>(size()) * graph.size(); }
  [[nodiscard]] TimePs deadline_ps(std::size_t s) const { return frontier.samples[s].time_ps; }
  [[nodiscard]] double gap(const std::vector<Candidate>& candidates, std::size_t s) const {
    return bound.gap(candidates[s].outcome.effective_uj, deadline_ps(s));
  }
  [[nodiscard]] double mean_gap(const std::vector<Candidate>& candidates) const {
    double sum = 0;
    for (std::size_t s = 0; s < size(); ++s) sum += gap(candidates, s);
    return sum / static_cast<double>(size());
  }
  [[nodiscard]] bool is_any_far_off(const std::vector<Candidate>& candidates) const {
    for (std::size_t s = 0; s < size(); ++s) {
      if (gap(candidates, s) > kFarOff) return true;
    }
    return false;
  }
};

// Ascending time, falling effective energy.
std::vector<Candidate> non_dominated(std::vector<Candidate> candidates) {
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.outcome.time_ps != b.outcome.time_ps ? a.outcome.time_ps < b.outcome.time_ps
                                                  : a.outcome.effective_uj < b.outcome.effective_uj;
  });
  std::vector<Candidate> kept;
  for (Candidate& candidate : candidates) {
    if (kept.empty() || candidate.outcome.effective_uj < kept.back().outcome.effective_uj) kept.push_back(std::move(candidate));
  }
  return kept;
}

constexpr auto kTime = [](const Candidate& candidate) { return candidate.outcome.time_ps; };

// The cheapest plan of a ladder (ascending time, falling energy) within the deadline; if none is, the fastest.
const Candidate& best_within(const std::vector<Candidate>& ladder, TimePs deadline_ps) {
  const auto after = std::ranges::upper_bound(ladder, deadline_ps, {}, kTime);
  return after == ladder.begin() ? *after : after[-1];
}

bool is_wanted(std::span<const TimePs> wanted_ps, TimePs deadline_ps) {
  return std::ranges::find(wanted_ps, deadline_ps) != wanted_ps.end();
}

// For annealing.
std::vector<Sweeps::Deadline> deadlines(const Task& task, std::span<const TimePs> wanted_ps) {
  const std::int64_t n = task.graph.size();
  const auto few = static_cast<std::int64_t>(std::clamp<std::size_t>(kManyDeadlines / task.size(), 1, kMoreMovesOfFew));
  const std::int64_t num =
      few * std::max(kFewestMoves, std::min(static_cast<std::int64_t>(kMovesPerInstruction * static_cast<double>(n)),
                                            kMovesTimesInstructions / n));
  std::vector<Sweeps::Deadline> deadlines;
  for (std::size_t s = 0; s < task.size(); ++s) {
    const TimePs deadline = task.deadline_ps(s);
    deadlines.push_back({.target = {.deadline_ps = deadline, .price_uw = task.bound.slope_at(deadline)},
                         .num_moves = num * (is_wanted(wanted_ps, deadline) ? kMoreMovesWhereWanted : 1)});
  }
  return deadlines;
}

// Of an instruction and the one before it on its rank, as far as they are tried.
double mean_pairs_of_clocks(const Menu& menu) {
  double sum = 0;
  for (const std::int32_t curve : menu.curve_of) {
    const double num = std::min(kClocksTried, menu.curve_begin[curve + 1] - menu.curve_begin[curve]);
    sum += num * num;
  }
  return sum / static_cast<double>(menu.num_instructions());
}

// Improves every candidate (one per sample) that is not close enough, by joining its neighbours on the hull.
// finish(worker, joint, sample) may improve a joint. Returns false if progress cancels.
template <class MakeWorker, class Play, class Finish>
bool join_candidates(const Task& task, std::vector<Candidate>& candidates, MakeWorker make_worker, Play play, Finish finish,
                     double work_ns, Meter& meter) {
  meter.begin(task.work(work_ns), static_cast<double>(kJoinRounds * task.size()));
  for (int round = 0; round < kJoinRounds && (round == 0 || task.is_any_far_off(candidates)); ++round) {
    std::vector<Candidate> hull;
    for (const std::size_t k : lower_hull(candidates)) hull.push_back(candidates[k]);
    parallel_for(task.size(), [&] {
      return [&, worker = make_worker()](std::size_t s, bool is_caller) mutable {
        if (!meter.go_on(is_caller)) return false;
        meter.add();
        const TimePs deadline = task.deadline_ps(s);
        if (task.gap(candidates, s) < kCloseEnough) return true;
        const auto slow = std::ranges::upper_bound(hull, deadline, {}, kTime);
        if (slow == hull.begin() || slow == hull.end()) return true;
        const Candidate& fast = slow[-1];
        Candidate best;
        for (const auto& order : task.orders) {
          Candidate joint = join(fast, *slow, order, deadline, [&](const Plan& plan) { return play(worker, plan); });
          if (best.plan.empty() || joint.outcome.effective_uj < best.outcome.effective_uj) best = std::move(joint);
        }
        finish(worker, best, s);
        if (best.outcome.time_ps <= deadline && best.outcome.effective_uj < candidates[s].outcome.effective_uj) {
          candidates[s] = std::move(best);
        }
        return true;
      };
    });
    if (meter.is_cancelled()) return false;
  }
  return true;
}

// Fills the plan of each next faster sample up to the deadline, where that is better than what is there.
void fill_from_faster(const Task& task, std::vector<Candidate>& candidates) {
  Rounding rounding(task.graph, task.menu, task.choices);
  for (std::size_t s = candidates.size() - 1; s-- > 0;) {  // samples descend in time
    if (task.gap(candidates, s) < kCloseEnough) continue;
    Plan plan = candidates[s + 1].plan;
    const Outcome outcome = rounding.fill(plan, task.deadline_ps(s), task.frontier.samples[s].price_uw);
    if (outcome.effective_uj < candidates[s].outcome.effective_uj)
      candidates[s] = {.plan = std::move(plan), .outcome = outcome};
  }
}

// Where a plan is still far off: takes over random stretches, of microbatches or of time, from plans for other deadlines, and
// fills what that leaves. In a steady state all stages are tied to each other, so that only such wide moves fit.
bool cross_candidates(const Task& task, std::vector<Candidate>& candidates, Meter& meter) {
  const std::int32_t num_microbatches = 1 + std::ranges::max(task.microbatch);
  const std::size_t n = task.microbatch.size();
  const std::size_t num_trials =
      std::max<std::size_t>(50, std::min(kFewTrials + kTrialsPerInstruction * n, kTrialsTimesInstructions / n));
  meter.begin(task.work(kCrossWork), static_cast<double>(kSearchRounds * task.size()));
  for (int round = 0; round < kSearchRounds && task.is_any_far_off(candidates); ++round) {
    const std::vector<Candidate> others = candidates;
    std::atomic<bool> is_any_better = false;
    parallel_for(task.size(), [&] {
      return [&, rounding = Rounding(task.graph, task.menu, task.choices), random = std::mt19937()](std::size_t s,
                                                                                                    bool is_caller) mutable {
        if (!meter.go_on(is_caller)) return false;
        meter.add();
        Candidate& best = candidates[s];
        const TimePs deadline = task.deadline_ps(s);
        if (task.gap(candidates, s) < kSearched) return true;
        random.seed(static_cast<std::uint32_t>(s + task.size() * static_cast<std::size_t>(round + 1)));
        const auto draw = [&](std::size_t from, std::size_t to) { return from + random() % (to - from); };
        const std::size_t first = s - std::min(s, kReach), last = std::min(s + kReach, others.size());
        Plan plan;
        for (std::size_t trial = 0; trial < num_trials; ++trial) {
          plan = best.plan;
          for (std::size_t stretches = draw(1, 3); stretches > 0; --stretches) {
            const Plan& other = others[draw(first, last)].plan;
            const bool is_of_time = draw(0, 3) == 0;
            const std::size_t range = is_of_time ? plan.size() : static_cast<std::size_t>(num_microbatches);
            const std::size_t from = draw(0, range), to = draw(from, range) + 1;
            if (is_of_time) {
              for (std::size_t k = from; k < to; ++k) plan[task.orders[0][k]] = other[task.orders[0][k]];
            } else {
              for (std::size_t i = 0; i < plan.size(); ++i) {
                const auto microbatch = static_cast<std::size_t>(std::max(0, task.microbatch[i]));
                if (microbatch >= from && microbatch < to) plan[i] = other[i];
              }
            }
          }
          if (rounding.play(plan).time_ps > deadline) continue;
          const Outcome outcome = rounding.fill(plan, deadline, task.frontier.samples[s].price_uw, draw(0, 2) == 0);
          if (outcome.effective_uj >= best.outcome.effective_uj) continue;
          best = {.plan = plan, .outcome = outcome};
          is_any_better = true;
          if (task.gap(candidates, s) < kSearched) break;
        }
        return true;
      };
    });
    if (meter.is_cancelled()) return false;
    if (!is_any_better) return true;
    fill_from_faster(task, candidates);
  }
  return true;
}

// Where a plan is still far off: a beam search over the clocks that it has, and those of two others. These are neighbours on the
// hull of all plans at first, then one neighbour or two are any plans for similar deadlines.
bool breed_candidates(const Task& task, std::vector<Candidate>& candidates, Meter& meter) {
  const std::int64_t most_crossings = std::max<std::int64_t>(1, kMostCrossed / task.graph.size());
  const auto num_crossings = static_cast<int>(std::min<std::int64_t>(kCrossings, most_crossings));
  const int rounds =
      static_cast<int>(std::min<std::int64_t>(kMoreCrossRounds, std::max<std::int64_t>(2, most_crossings / kCrossings)));
  meter.begin(task.work(kCrossWork), static_cast<double>(rounds) * static_cast<double>(task.size()));
  for (int round = 0; round < rounds && task.is_any_far_off(candidates); ++round) {
    if (round >= kCrossRounds && task.mean_gap(candidates) < kMeanFarOff) return true;
    const std::vector<Candidate> others = candidates;
    std::vector<Candidate> hull;
    for (const std::size_t k : lower_hull(others)) hull.push_back(others[k]);
    parallel_for(task.size(), [&] {
      return [&, rounding = Rounding(task.graph, task.menu, task.choices),
              beam = Beam(task.graph, task.menu, task.choices, kBeamWidth), random = std::mt19937(),
              fast_ps = std::vector<TimePs>(task.microbatch.size())](std::size_t s, bool is_caller) mutable {
        if (!meter.go_on(is_caller)) return false;
        meter.add();
        const TimePs deadline = task.deadline_ps(s);
        if (task.gap(candidates, s) < kSearched) return true;
        const auto slow = static_cast<std::size_t>(std::ranges::upper_bound(hull, deadline, {}, kTime) - hull.begin());
        if (slow == 0 || slow == hull.size()) return true;
        random.seed(static_cast<std::uint32_t>(s + task.size() * static_cast<std::size_t>(round + 1)));
        const auto draw = [&](std::size_t from, std::size_t to) { return from + random() % (to - from); };
        const std::size_t first = s - std::min(s, kReach), last = std::min(s + kReach, others.size());
        for (int crossing = 0; crossing < num_crossings; ++crossing) {
          const std::size_t away = crossing == 0 ? 0 : draw(0, kHullReach);
          const Plan& fast = hull[slow - 1 - std::min(away, slow - 1)].plan;
          std::array<const Plan*, 3> parents{&candidates[s].plan, &fast, &hull[slow].plan};
          if (crossing > 0) parents[2] = &others[draw(first, last)].plan;
          if (crossing > 1) parents[1] = &others[draw(first, last)].plan;
          for (std::size_t i = 0; i < fast.size(); ++i) {
            fast_ps[i] = task.choices.duration_ps(task.menu.curve_of[i])[fast[i]];
          }
          const Sample& sample = task.frontier.samples[s];
          for (Plan& plan : beam.cross(sample, latest_ends(task.graph, fast_ps, deadline), parents, kCrossed)) {
            const Outcome outcome = rounding.fill(plan, deadline, sample.price_uw);
            if (outcome.effective_uj >= candidates[s].outcome.effective_uj) continue;
            candidates[s] = {.plan = plan, .outcome = outcome};
          }
        }
        return true;
      };
    });
    if (meter.is_cancelled()) return false;
    fill_from_faster(task, candidates);
  }
  return true;
}

// Rounded and joined, and where `is_searched`, searched for better ones.
std::vector<Candidate> realise_without_latency(const Task& task, Meter& meter, bool is_searched = true) {
  const auto& samples = task.frontier.samples;
  std::vector<Candidate> candidates(task.size());
  meter.begin(task.work(kRoundingWork), static_cast<double>(task.size()));
  const auto make_worker = [&] { return Rounding(task.graph, task.menu, task.choices); };
  parallel_for(task.size(), [&] {
    return [&, rounding = make_worker(), plan = Plan()](std::size_t s, bool is_caller) mutable {
      if (!meter.go_on(is_caller)) return false;
      meter.add();
      const TimePs deadline = task.deadline_ps(s);
      for (std::size_t from = s; from < std::min(s + kRoundedFrom, task.size()); ++from) {
        rounding.round(samples[from], plan, deadline - task.deadline_ps(from));
        const Outcome outcome = rounding.fill(plan, deadline, samples[s].price_uw);
        if (from == s || outcome.effective_uj < candidates[s].outcome.effective_uj) {
          candidates[s] = {.plan = plan, .outcome = outcome};
        }
        if (task.gap(candidates, s) < kCloseEnough) break;
      }
      return true;
    };
  });
  if (meter.is_cancelled()) return {};
  const auto play = [](Rounding& rounding, const Plan& plan) { return rounding.play(plan); };
  const auto finish = [&](Rounding& rounding, Candidate& joint, std::size_t s) {
    joint.outcome = rounding.fill(joint.plan, task.deadline_ps(s), samples[s].price_uw);
  };
  if (!join_candidates(task, candidates, make_worker, play, finish, kJoinWork, meter)) return {};
  fill_from_faster(task, candidates);
  const bool has_flows = !samples.front().flow_uw.empty();
  if (is_searched && !(has_flows ? breed_candidates : cross_candidates)(task, candidates, meter)) return {};
  const Rounding rounding = make_worker();
  for (Candidate& candidate : candidates) candidate.plan = rounding.clocks(candidate.plan);
  return candidates;
}

// For each instruction the earliest start of those that wait for it: if none outlasts that, nobody is delayed.
std::vector<TimePs> free_ends(const Graph& graph, std::span<const TimePs> start_ps, TimePs deadline_ps) {
  std::vector<TimePs> end(graph.size(), deadline_ps);
  for (std::int32_t i = 0; i < graph.size(); ++i) {
    for (const std::int32_t j : graph.successors_of(i)) end[i] = std::min(end[i], start_ps[j]);
  }
  return end;
}

// Plans without latency tell how much time each instruction may have; the relaxed solutions, what that time is worth.
std::vector<Candidate> realise_with_latency(const Task& task, std::span<const TimePs> latency_ps, const Candidate& all_max,
                                            std::span<const TimePs> wanted_ps, const Progress& progress) {
  const auto& samples = task.frontier.samples;
  const auto make_worker = [&] { return Smoothing(task.graph, task.menu, latency_ps); };
  const Sweeps sweeps(task.graph, task.menu, latency_ps, make_worker().worth_of_change_uj(), deadlines(task, wanted_ps));
  // Where deadlines are close to each other and the frontier is exact, rough plans will do to begin with.
  const bool is_dense = task.size() >= kManyDeadlines / 2 && !samples.front().flow_uw.empty();
  std::vector<std::size_t> starts;
  for (std::size_t s = 0; s < task.size(); ++s) {
    const bool is_left_out = is_dense && s % kDeadlinesPerStart != 0 && s + 1 < task.size();
    if (!is_left_out || is_wanted(wanted_ps, task.deadline_ps(s))) starts.push_back(s);
  }
  const auto num_moves = static_cast<double>(sweeps.num_moves());
  const double pass_work = num_moves * kMoveWork * std::sqrt(static_cast<double>(task.graph.size()));
  const double smoothing_work = kSmoothingWork * static_cast<double>(2 * starts.size()) *
                                static_cast<double>(task.graph.size()) * mean_pairs_of_clocks(task.menu);
  const double joins_work = task.work(kJoinWithLatencyWork) * (1 + Sweeps::kPasses / kPassesPerJoin);
  Meter meter(progress, task.work(kRoundingWork + kJoinWork + (is_dense ? 0 : kCrossWork)) + smoothing_work + joins_work +
                            Sweeps::kPasses * pass_work);
  const std::vector<Candidate> unhindered = realise_without_latency(task, meter, !is_dense);
  if (unhindered.empty()) return {};
  std::vector<Candidate> pool(2 * starts.size(), all_max);
  meter.begin(smoothing_work, static_cast<double>(starts.size()));
  parallel_for(starts.size(), [&] {
    return [&, smoothing = make_worker(), unhindered_replay = Replay(task.graph, task.menu, {})](std::size_t k,
                                                                                                 bool is_caller) mutable {
      if (!meter.go_on(is_caller)) return false;
      meter.add();
      const std::size_t s = starts[k];
      const Plan& near = unhindered[s].plan;
      unhindered_replay.play(near);
      const auto& start_ps = unhindered_replay.start_ps;
      const auto add = [&](std::size_t to, const Smoothing::Windows& windows) {
        Plan plan = smoothing.cheapest(windows, near);
        const Outcome outcome = smoothing.play(plan);
        pool[to] = {.plan = std::move(plan), .outcome = outcome};
      };
      const std::vector<TimePs> end_ps = free_ends(task.graph, start_ps, task.deadline_ps(s));
      add(2 * k, {.start_ps = start_ps, .end_ps = end_ps, .price_uw = {}});
      add(2 * k + 1, {.start_ps = start_ps, .end_ps = {}, .price_uw = samples[s].price_uw});
      return true;
    };
  });
  if (meter.is_cancelled()) return {};

  pool.push_back(all_max);
  const std::vector<Candidate> ladder = non_dominated(std::move(pool));
  std::vector<Candidate> candidates;  // one per sample; where no plan is on time, the fastest there is
  for (std::size_t s = 0; s < task.size(); ++s) candidates.push_back(best_within(ladder, task.deadline_ps(s)));
  const auto join_all = [&] {
    const auto play = [](Smoothing& smoothing, const Plan& plan) { return smoothing.play(plan); };
    const auto finish = [](Smoothing&, Candidate&, std::size_t) {};
    return join_candidates(task, candidates, make_worker, play, finish, kJoinWithLatencyWork, meter);
  };
  if (!join_all()) return {};
  for (int pass = 0; pass < Sweeps::kPasses; ++pass) {
    meter.begin(pass_work, num_moves);
    if (!sweeps.pass(pass, candidates, meter)) return {};
    if ((pass + 1) % kPassesPerJoin == 0 && !join_all()) return {};
  }
  meter.end();
  if (!meter.go_on(true)) return {};
  return candidates;
}

}  // namespace

std::vector<RealisedPlan> realise(const Graph& graph, const Menu& menu, const FrontierResult& frontier,
                                  std::span<const std::int32_t> microbatch, PowerUw blocking_uw,
                                  std::span<const TimePs> latency_ps, std::span<const TimePs> wanted_ps,
                                  const Progress& progress) {
  if (frontier.samples.empty()) throw std::invalid_argument("no samples to realise");
  const Choices choices(menu);
  const Task task{.graph = graph,
                  .menu = menu,
                  .frontier = frontier,
                  .choices = choices,
                  .bound = Bound(menu, choices, frontier, blocking_uw),
                  .orders = handover_orders(microbatch, frontier.samples.front().end_ps),
                  .microbatch = microbatch};
  Candidate all_max{.plan = Plan(menu.num_instructions(), 0), .outcome = {}};
  all_max.outcome = Replay(graph, menu, latency_ps).play(all_max.plan);
  const bool is_free = std::ranges::all_of(latency_ps, [](TimePs latency) { return latency == 0; });
  std::vector<Candidate> candidates;
  if (is_free) {
    Meter meter(progress, task.work(kRoundingWork + kJoinWork + kCrossWork));
    candidates = realise_without_latency(task, meter);
  } else {
    candidates = realise_with_latency(task, latency_ps, all_max, wanted_ps, progress);
  }
  if (candidates.empty()) return {};
  Replay replay(graph, menu, latency_ps);
  std::erase_if(candidates, [&](const Candidate& candidate) {
    replay.play(candidate.plan);
    return !replay.reaches_all(candidate.plan);
  });
  candidates.push_back(std::move(all_max));
  std::vector<RealisedPlan> plans = non_dominated(std::move(candidates));
  for (auto& [plan, outcome] : plans) outcome.num_changes = replay.num_changes(plan);
  return plans;
}

}  // namespace perseus
