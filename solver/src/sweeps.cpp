#include "sweeps.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "parallel.hpp"

namespace perseus {
namespace {

// Temperatures as shares of an instruction's mean effective energy: at first a worse clock here and there, at last none.
constexpr double kFirstTemperature = 0.015;
constexpr double kLastTemperature = 0.0006;
// The state is left for the best plan known for a deadline where that is better by so many temperatures.
constexpr double kLeftBehind = 1;
// Deadlines of a block.
constexpr std::size_t kBlock = 32;

double temperature(int passes_done) {
  return kFirstTemperature * std::pow(kLastTemperature / kFirstTemperature, static_cast<double>(passes_done) / Sweeps::kPasses);
}

}  // namespace

Sweeps::Sweeps(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps, double worth_of_change_uj,
               std::vector<Deadline> deadlines)
    : graph_(graph),
      menu_(menu),
      latency_ps_(latency_ps),
      worth_of_change_uj_(worth_of_change_uj),
      deadlines_(std::move(deadlines)) {
  for (const Deadline& deadline : deadlines_) time_ps_.push_back(deadline.target.deadline_ps);
}

std::int64_t Sweeps::num_moves() const {
  std::int64_t sum = 0;
  for (const Deadline& deadline : deadlines_) sum += deadline.num_moves;
  return sum;
}

bool Sweeps::pass(int number, std::vector<Candidate>& candidates, Meter& meter) const {
  const bool is_down = number % 2 == 0;
  const std::size_t num = deadlines_.size();
  std::vector<std::size_t> begin{0};  // of each block, and the end of the last
  for (std::size_t s = is_down ? kBlock / 2 : kBlock; s + kBlock / 2 < num; s += kBlock) begin.push_back(s);
  begin.push_back(num);
  const std::size_t num_blocks = begin.size() - 1;
  std::vector<Plan> first_plan;  // of each block, from the one that it follows
  for (std::size_t b = 0; b < num_blocks; ++b) {
    first_plan.push_back(candidates[is_down ? begin[b] - (b > 0 ? 1 : 0) : std::min(begin[b + 1], num - 1)].plan);
  }
  std::vector<double> cost(num);
  parallel_for(
      num_blocks,
      [&] {
        return
            [&, annealing = Annealing(graph_, menu_, latency_ps_, worth_of_change_uj_)](std::size_t b, bool is_caller) mutable {
              const std::size_t size = begin[b + 1] - begin[b];
              Archive archive{.deadline_ps = std::span(time_ps_).subspan(begin[b], size),
                              .cost = std::span(cost).subspan(begin[b], size),
                              .best = std::span(candidates).subspan(begin[b], size)};
              for (std::size_t k = 0; k < size; ++k) {
                const Outcome& outcome = archive.best[k].outcome;
                const bool is_on_time = outcome.time_ps <= archive.deadline_ps[k];
                archive.cost[k] = is_on_time ? annealing.cost(outcome) : std::numeric_limits<double>::infinity();
              }
              annealing.seed(static_cast<std::uint32_t>(b + num_blocks * static_cast<std::size_t>(number)));
              annealing.start(first_plan[b]);
              for (std::size_t step = 0; step < size; ++step) {
                if (!meter.go_on(is_caller)) return false;
                const std::size_t k = is_down ? step : size - 1 - step;
                const auto& [target, num_moves] = deadlines_[begin[b] + k];
                const double margin = kLeftBehind * temperature(number) * annealing.mean_effective_uj();
                if (annealing.cost_for(target) > archive.cost[k] + margin) annealing.start(archive.best[k].plan);
                annealing.run(target, num_moves, temperature(number), temperature(number + 1), archive, k);
                meter.add(static_cast<double>(num_moves));
              }
              return true;
            };
      },
      1);
  return !meter.is_cancelled();
}

}  // namespace perseus
