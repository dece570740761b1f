// The frontier to a tolerance: proposals of coarser problems, refined where the sandwich is too wide.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <ranges>
#include <stdexcept>

#include "check.hpp"
#include "coarse_hulls.hpp"
#include "meter.hpp"
#include "parallel.hpp"
#include "perseus/graph.hpp"
#include "sandwich.hpp"
#include "trace.hpp"

namespace perseus {
namespace {

// Quanta in which the first trace divides a mean hull, from the slope at one end to that at the other.
constexpr double kFirstQuanta = 8;
// The same for tolerances above this one, which need no other trace.
constexpr double kFewQuanta = 2;
constexpr double kWide = 0.01;
// Of refinement, after which the result says how far it came.
constexpr int kMostRounds = 8;
// Aimed at, as a share of the tolerance, so that one round of refinement does: gaps grow with the square of the quantum, roughly.
constexpr double kAim = 0.55;
// Shares of the work that the first round takes, and each later one of what is left then: the second mostly is the last.
constexpr double kOfFirstRound = 0.2;
constexpr double kOfLaterRound = 0.9;
// A mean of solutions begins with every second one.
constexpr std::int64_t kStride = 2;

// A trace of coarse hulls down to some time.
struct Run {
  PowerUw quantum_uw;
  TimePs until_ps;
};

// The last solutions of a trace, from which it makes proposals: a mean over as many of them as an instruction needs
// to take one quantum lies between the corners of the coarse hulls, much closer to the frontier than each.
class Means {
 public:
  Means(const HullCosts& costs, std::size_t num_values) : costs_(costs), last_(kSolutionsInMean, Solution(num_values)) {}

  void add(const Sample& sample) {
    Solution& s = last_[num_++ % last_.size()];
    s.time_ps = sample.time_ps;
    s.slope_uw = sample.slope_uw;
    auto to = s.values.begin();
    for (const auto values : {sample.start_ps, sample.end_ps, sample.price_uw}) to = std::ranges::copy(values, to).out;
  }
  [[nodiscard]] std::size_t size() const { return num_; }
  // Of the last `count` solutions, a power of 2 up to kSolutionsInMean.
  [[nodiscard]] Proposal mean(std::size_t count) const {
    Solution sum(last_.front().values.size());
    for (std::size_t age = 1; age <= count; ++age) {
      const Solution& s = last_[(num_ - age) % last_.size()];
      sum.time_ps += s.time_ps;
      sum.slope_uw += s.slope_uw;
      for (std::size_t k = 0; k < sum.values.size(); ++k) sum.values[k] += s.values[k];
    }
    const auto times = kSolutionsInMean / static_cast<std::int64_t>(count);
    for (std::int64_t& value : sum.values) value *= times;
    return costs_.propose(times * sum.time_ps, times * sum.slope_uw, sum.values);
  }

 private:
  struct Solution {
    explicit Solution(std::size_t num_values) : values(num_values) {}
    TimePs time_ps = 0;
    PowerUw slope_uw = 0;
    std::vector<std::int64_t> values;
  };

  const HullCosts& costs_;
  std::vector<Solution> last_;
  std::size_t num_ = 0;
};

class Refinement {
 public:
  Refinement(const FrontierProblem& problem, const Sampling& sampling, const Tolerance& tolerance, const Progress& progress);
  FrontierResult run();

 private:
  bool trace(const std::vector<Run>& runs);
  FrontierResult trace(const Run& run, std::vector<Proposal>& proposals, const Progress& progress);
  [[nodiscard]] std::vector<Run> finer(const Sandwich& sandwich) const;
  [[nodiscard]] PowerUw quantum_at(TimePs time_ps) const;
  void forget_all_but(std::span<const std::size_t> kept);
  void take_samples(const Sandwich& sandwich);
  void take_sample(const Sandwich& sandwich, TimePs time_ps);

  const FrontierProblem& problem_;
  const Sampling& sampling_;
  const Tolerance& tolerance_;
  const Progress& progress_;
  Graph dag_;
  TimePs t_min_ps_;
  HullCosts costs_;
  double power_range_uw_;  // of a mean hull, from its slope at one end to that at the other
  std::vector<Run> runs_;
  int num_rounds_ = 0;
  std::vector<Proposal> proposals_;
  FrontierResult result_;
};

Refinement::Refinement(const FrontierProblem& problem, const Sampling& sampling, const Tolerance& tolerance,
                       const Progress& progress)
    : problem_(problem),
      sampling_(sampling),
      tolerance_(tolerance),
      progress_(progress),
      dag_(static_cast<std::int32_t>(problem.curve_of.size()), problem.edge_from, problem.edge_to),
      t_min_ps_(std::ranges::max(earliest_ends(dag_, extreme_durations(problem, true)))),
      costs_(problem) {
  // A proposal of no energy: all at their cheapest.
  const std::vector<TimePs> duration_ps = extreme_durations(problem, false);
  const std::vector<TimePs> end_ps = earliest_ends(dag_, duration_ps);
  const std::size_t n = duration_ps.size();
  std::vector<std::int64_t> sums(3 * n);
  EnergyAj energy_aj = 0;
  double range_ps = 0;
  for (std::size_t i = 0; i < n; ++i) {
    sums[i] = kSolutionsInMean * (end_ps[i] - duration_ps[i]);
    sums[n + i] = kSolutionsInMean * end_ps[i];
    const std::int32_t begin = problem.hull_begin[problem.curve_of[i]];
    energy_aj += costs_.energy_aj(problem.curve_of[i], problem.hull_ps[begin]);
    range_ps += static_cast<double>(duration_ps[i] - problem.hull_ps[begin]);
  }
  power_range_uw_ = 2 * static_cast<double>(energy_aj) / std::max(range_ps, 1.0);
  proposals_.push_back(costs_.propose(kSolutionsInMean * std::ranges::max(end_ps), 0, sums));
}

FrontierResult Refinement::run() {
  const bool is_wide = tolerance_.share > kWide;
  const auto rough_uw = static_cast<PowerUw>(power_range_uw_ / (is_wide ? kFewQuanta : kFirstQuanta)) + 1;
  std::vector<Run> runs{{rough_uw, t_min_ps_}};
  if (!is_wide) {  // later times, where few quanta flow, need more of them to be foreseen
    const TimePs range_ps = proposals_.front().time_ps - t_min_ps_;
    runs.push_back({rough_uw / 2 + 1, t_min_ps_ + range_ps / 3});
    runs.push_back({rough_uw / 4 + 1, t_min_ps_ + range_ps / 4 * 3});
  }
  for (;;) {
    if (!trace(runs)) return std::move(result_);
    const Sandwich sandwich(proposals_, t_min_ps_, tolerance_.least_uj, sampling_.blocking_uw);
    result_.share_below = sandwich.worst_share();
    if (num_rounds_ > kMostRounds || result_.share_below <= tolerance_.share) {
      take_samples(sandwich);
      result_.time_ps = sandwich.time_ps;
      result_.slope_uw = sandwich.slope_uw;
      result_.energy_aj = sandwich.energy_aj;
      return std::move(result_);
    }
    runs = finer(sandwich);
    forget_all_but(sandwich.on_hull);
  }
}

// Frees the schedules that no sample will be made of.
void Refinement::forget_all_but(std::span<const std::size_t> kept) {
  std::vector<bool> is_kept(proposals_.size());
  for (const std::size_t k : kept) is_kept[k] = true;
  for (std::size_t k = 0; k < proposals_.size(); ++k) {
    if (!is_kept[k]) proposals_[k].values = {};
  }
}

// Carries out runs on all cores; returns false if progress cancels.
bool Refinement::trace(const std::vector<Run>& runs) {
  std::vector<std::vector<Proposal>> proposals(runs.size());
  std::atomic<bool> cancelled = false;
  const double before = num_rounds_ == 0 ? 0 : 1 - (1 - kOfFirstRound) * std::pow(1 - kOfLaterRound, num_rounds_ - 1);
  const double size = num_rounds_ == 0 ? kOfFirstRound : (1 - before) * kOfLaterRound;
  std::vector<FrontierResult> results(runs.size());
  parallel_for(
      runs.size(),
      [&] {
        return [&](std::size_t k, bool is_caller) {
          const auto count = static_cast<double>(runs.size());
          const Progress progress = [&](double done) {
            const double of_round = (static_cast<double>(k) + done) / count;
            if (is_caller && progress_) ask(progress_, before + size * of_round, cancelled);
            return !cancelled;
          };
          results[k] = trace(runs[k], proposals[k], progress);
          return !cancelled;
        };
      },
      1);
  for (auto& of_run : proposals) std::ranges::move(of_run, std::back_inserter(proposals_));
  for (const FrontierResult& of_run : results) {
    result_.num_augmentations += of_run.num_augmentations;
    result_.num_moves += of_run.num_moves;
  }
  runs_.insert(runs_.end(), runs.begin(), runs.end());
  ++num_rounds_;
  result_.cancelled = cancelled;
  return !cancelled;
}

FrontierResult Refinement::trace(const Run& run, std::vector<Proposal>& proposals, const Progress& progress) {
  const CoarseHulls hulls = coarse_hulls(problem_, run.quantum_uw);
  const FrontierProblem coarse = hulls.of(problem_);
  const TimePs t_max_ps = std::ranges::max(earliest_ends(dag_, extreme_durations(coarse, false)));
  // Closer together towards t_min, where the frontier is steep: a mean spans about a quantum everywhere.
  const double quanta = power_range_uw_ / static_cast<double>(run.quantum_uw);
  const double num_steps = std::ceil(kSolutionsInMean * std::clamp(quanta, 2.0, 1e6));
  std::vector<TimePs> grid_ps;
  for (double left = num_steps; left >= 0; --left) {
    const double share = left / num_steps;
    const TimePs time_ps = t_min_ps_ + std::llround(share * share * static_cast<double>(t_max_ps - t_min_ps_));
    if (grid_ps.empty() || time_ps < grid_ps.back()) grid_ps.push_back(time_ps);
  }
  Means means(costs_, 3 * problem_.curve_of.size());
  return trace_samples(
      coarse, grid_ps,
      [&](const Sample& sample) {
        means.add(sample);
        const bool is_near_end = means.size() + 2 * kSolutionsInMean > grid_ps.size();
        // Near t_min, where a mean would reach beyond it, shorter ones.
        for (std::size_t count = is_near_end ? 1 : kSolutionsInMean; count <= kSolutionsInMean; count *= 2) {
          if (means.size() >= count && (means.size() % kStride == 0 || is_near_end)) proposals.push_back(means.mean(count));
        }
        return proposals.empty() || proposals.back().time_ps >= run.until_ps;
      },
      progress);
}

// The finest quantum of all runs that came down to a time.
PowerUw Refinement::quantum_at(TimePs time_ps) const {
  PowerUw finest_uw = std::numeric_limits<PowerUw>::max();
  for (const Run& run : runs_) {
    if (run.until_ps <= time_ps) finest_uw = std::min(finest_uw, run.quantum_uw);
  }
  return finest_uw;
}

// The cheapest runs that will bring the gap down everywhere, each as far down as its quantum is needed. A run costs as much as it
// sends quanta of flow, and does for all later times that need none finer.
std::vector<Run> Refinement::finer(const Sandwich& sandwich) const {
  struct Need {
    TimePs time_ps;
    double quantum_uw;
    double flow_uw;
  };
  std::vector<Need> needs;  // ascending time
  std::size_t piece = sandwich.time_ps.size() - 1;
  for (const Sandwich::Gap& gap : std::views::reverse(sandwich.gaps)) {
    while (piece > 0 && sandwich.time_ps[piece] <= gap.time_ps) --piece;
    if (gap.share <= tolerance_.share) continue;
    const double finer = std::sqrt(kAim * tolerance_.share / gap.share);
    needs.push_back(
        {gap.time_ps, static_cast<double>(quantum_at(gap.time_ps)) * finer, static_cast<double>(sandwich.slope_uw[piece])});
  }
  struct Choice {
    double quanta = 0;  // that this and all further runs send
    double quantum_uw = 0;
    std::size_t next = 0;  // first need that is left to further runs
  };
  std::vector<Choice> best(needs.size() + 1);  // for this need and all later ones
  for (std::size_t k = needs.size(); k-- > 0;) {
    best[k].quanta = std::numeric_limits<double>::infinity();
    double finest_uw = needs[k].quantum_uw;
    for (std::size_t next = k; next < needs.size();) {
      finest_uw = std::min(finest_uw, needs[next].quantum_uw);
      while (next < needs.size() && needs[next].quantum_uw >= finest_uw) ++next;
      const double quanta = needs[k].flow_uw / finest_uw + best[next].quanta;
      if (quanta < best[k].quanta) best[k] = {.quanta = quanta, .quantum_uw = finest_uw, .next = next};
    }
  }
  std::vector<Run> runs;
  for (std::size_t k = 0; k < needs.size(); k = best[k].next) {
    runs.push_back({std::max<PowerUw>(1, std::llround(best[k].quantum_uw)), needs[k].time_ps});
  }
  return runs;
}

// As the exact trace takes them.
void Refinement::take_samples(const Sandwich& sandwich) {
  const TimePs t_max_ps = proposals_.front().time_ps;
  const auto steep = std::ranges::find_if(sandwich.slope_uw, [&](PowerUw slope) { return slope >= sampling_.blocking_uw; });
  result_.t_star_ps = steep == sandwich.slope_uw.end() ? t_min_ps_ : sandwich.time_ps[steep - sandwich.slope_uw.begin()];
  std::vector<TimePs> wanted_ps;
  for (const TimePs time_ps : sampling_.extra_ps) {
    if (time_ps >= t_min_ps_ && time_ps <= t_max_ps) wanted_ps.push_back(time_ps);
  }
  for (std::int32_t k = 0; k <= sampling_.num_beyond && sampling_.num_beyond > 0; ++k) {
    const TimePs time_ps = grid_time(t_min_ps_, t_max_ps, k, sampling_.num_beyond, false);
    if (time_ps > result_.t_star_ps) wanted_ps.push_back(time_ps);
  }
  for (std::int32_t k = 0; k < sampling_.num_to_t_star; ++k) {
    wanted_ps.push_back(grid_time(t_min_ps_, result_.t_star_ps, k, std::max(1, sampling_.num_to_t_star - 1), true));
  }
  std::ranges::sort(wanted_ps, std::greater{});
  const auto repeated = std::ranges::unique(wanted_ps);
  wanted_ps.erase(repeated.begin(), repeated.end());
  result_.sample_values.reserve(3 * problem_.curve_of.size() * wanted_ps.size());
  for (const TimePs time_ps : wanted_ps) take_sample(sandwich, time_ps);
}

// A mean of the proposals at both sides is a schedule and a flow too.
void Refinement::take_sample(const Sandwich& sandwich, TimePs time_ps) {
  const auto& hull = sandwich.on_hull;
  auto after = std::ranges::find_if(hull, [&](std::size_t k) { return proposals_[k].time_ps <= time_ps; });
  if (after == hull.begin()) ++after;  // a hull has two ends, or one that all samples are taken from
  const Proposal& slow = proposals_[after[-1]];
  const Proposal& fast = after == hull.end() ? slow : proposals_[*after];
  const auto between = static_cast<double>(std::max<TimePs>(slow.time_ps - fast.time_ps, 1));
  constexpr EnergyAj kAll = 1 << 20;
  const auto faster = static_cast<EnergyAj>(
      std::ceil(std::clamp(static_cast<double>(slow.time_ps - time_ps) / between, 0.0, 1.0) * static_cast<double>(kAll)));
  auto& values = result_.sample_values;
  const std::size_t n = problem_.curve_of.size(), begin = values.size();
  for (std::size_t k = 0; k < 3 * n; ++k) {
    values.push_back(static_cast<std::int64_t>((slow.values[k] * (kAll - faster) + fast.values[k] * faster) / kAll));
  }
  const std::int64_t* const start = values.data() + begin;
  result_.samples.push_back({.time_ps = time_ps,
                             .start_ps = {start, n},
                             .end_ps = {start + n, n},
                             .price_uw = {start + 2 * n, n},
                             .slope_uw = 0,
                             .flow_uw = {}});
}

// Sums over the solutions of a mean fit into 64 bits where those over all instructions, which check() bounds, are less by this.
void check_sums(const FrontierProblem& problem) {
  EnergyAj time_ps = 0, slope_uw = 0;
  for (const std::int32_t curve : problem.curve_of) {
    time_ps += problem.hull_ps[problem.hull_begin[curve + 1] - 1];
    slope_uw += problem.slope_uw[problem.hull_begin[curve]];
  }
  if (std::max(time_ps, slope_uw) > std::numeric_limits<std::int64_t>::max() / (2 * kSolutionsInMean)) {
    throw std::invalid_argument("durations or slopes are too large for a tolerance; trace exactly");
  }
}

}  // namespace

FrontierResult solve_frontier_within(const FrontierProblem& problem, const Sampling& sampling, const Tolerance& tolerance,
                                     const Progress& progress) {
  check(problem);
  check_sums(problem);
  return Refinement(problem, sampling, tolerance, progress).run();
}

}  // namespace perseus
