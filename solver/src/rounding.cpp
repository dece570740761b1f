#include "rounding.hpp"

namespace perseus {
namespace {

// Left-over time goes first where it saves nearly what it is worth (an intermediate clock never quite does), then to anyone.
constexpr double kSharesOfPrice[] = {0.9, 0.0};

}  // namespace

Rounding::Rounding(const Graph& graph, const Menu& menu, const Choices& choices)
    : graph_(graph), choices_(choices), duration_ps_(graph.size()), end_ps_(graph.size()), latest_start_ps_(graph.size()) {
  for (const std::int32_t curve : menu.curve_of) {
    const auto durations = choices.duration_ps(curve);
    rows_.push_back({.duration_ps = durations.data(),
                     .effective_uj = choices.effective_uj(curve).data(),
                     .num_choices = static_cast<std::int32_t>(durations.size()),
                     .curve = curve});
  }
}

Outcome Rounding::outcome(std::span<const std::int32_t> plan) const {
  Outcome outcome;
  for (std::int32_t i = 0; i < graph_.size(); ++i) {
    outcome.time_ps = std::max(outcome.time_ps, end_ps_[i]);
    outcome.effective_uj += rows_[i].effective_uj[plan[i]];
  }
  return outcome;
}

Outcome Rounding::play(std::span<const std::int32_t> plan) {
  for (const std::int32_t i : graph_.order) end_ps_[i] = start(i) + rows_[i].duration_ps[plan[i]];
  return outcome(plan);
}

Outcome Rounding::round(const Sample& sample, Plan& plan, TimePs later_ps) {
  plan.resize(graph_.size());
  for (const std::int32_t i : graph_.order) {
    const TimePs from = start(i);
    plan[i] = choices_.cheapest(rows_[i].curve, sample.end_ps[i] + later_ps - from, sample.price_uw[i]);
    end_ps_[i] = from + rows_[i].duration_ps[plan[i]];
  }
  return outcome(plan);
}

// Takes the slowest choice that fits and saves at least so much for the time it takes.
void Rounding::slow_down(std::int32_t i, TimePs room_ps, double worth, Plan& plan) {
  const Row& row = rows_[i];
  const std::int32_t now = plan[i];
  for (std::int32_t k = now + 1; k < row.num_choices && row.duration_ps[k] <= room_ps; ++k) {
    const auto saved = static_cast<double>(row.effective_uj[now] - row.effective_uj[k]);
    if (saved >= worth * static_cast<double>(row.duration_ps[k] - row.duration_ps[now])) plan[i] = k;
  }
  duration_ps_[i] = row.duration_ps[plan[i]];
}

Outcome Rounding::fill(Plan& plan, TimePs deadline_ps, std::span<const PowerUw> price_uw, bool late_first) {
  for (std::int32_t i = 0; i < graph_.size(); ++i) duration_ps_[i] = rows_[i].duration_ps[plan[i]];
  const auto pass_back = [&](auto choose) {
    for (std::int32_t k = graph_.size() - 1; k >= 0; --k) {
      const std::int32_t i = graph_.order[k];
      TimePs latest = deadline_ps;
      for (const std::int32_t j : graph_.successors_of(i)) latest = std::min(latest, latest_start_ps_[j]);
      choose(i, latest);
      latest_start_ps_[i] = latest - duration_ps_[i];
    }
  };
  const auto pass_on = [&](auto choose) {
    for (const std::int32_t i : graph_.order) {
      const TimePs from = start(i);
      choose(i, from);
      end_ps_[i] = from + duration_ps_[i];
    }
  };
  const auto keep = [](std::int32_t, TimePs) {};
  for (const double share_of_price : kSharesOfPrice) {
    const auto worth = [&](std::int32_t i) {
      return share_of_price * static_cast<double>(price_uw[i]) / static_cast<double>(kAjPerUj);
    };
    if (late_first) {
      pass_on(keep);
      pass_back([&](std::int32_t i, TimePs latest) { slow_down(i, latest - (end_ps_[i] - duration_ps_[i]), worth(i), plan); });
    } else {
      pass_back(keep);
      pass_on([&](std::int32_t i, TimePs from) { slow_down(i, latest_start_ps_[i] + duration_ps_[i] - from, worth(i), plan); });
    }
  }
  if (late_first) pass_on(keep);
  return outcome(plan);
}

Plan Rounding::clocks(std::span<const std::int32_t> plan) const {
  Plan clocks(plan.begin(), plan.end());
  for (std::size_t i = 0; i < clocks.size(); ++i) clocks[i] = choices_.clock(rows_[i].curve)[plan[i]];
  return clocks;
}

}  // namespace perseus
