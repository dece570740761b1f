#include "perseus/frontier.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <queue>
#include <stdexcept>

#include "check.hpp"
#include "perseus/graph.hpp"
#include "residual.hpp"
#include "trace.hpp"

namespace perseus {
namespace {

constexpr TimePs kNoTime = -1;  // earlier than any iteration time, which may be 0

// Every vertex of the residual graph has a potential: the moment at which it happens.
//
// As T falls, a vertex either stands still or slides: it happens earlier by as much as T has fallen. The source stands, the
// sink slides. A residual arc from a standing to a sliding vertex loses slack; when none is left, something must give:
//
//   - a vertex that is tied to neither end changes over to the other's motion, which costs nothing;
//   - if the standing one is tied to the source and the sliding one to the sink (by residual arcs without slack), there is a
//     longest residual path: flow is sent along it until one of its arcs is full, which unties what hung on that arc.
//
// The ties are two trees that live from one augmentation to the next; a vertex cut off keeps its motion until it must change.
class Trace {
 public:
  Trace(const FrontierProblem& problem, const Sampling& sampling, const Progress& progress, const VisitSample& visit);
  FrontierResult run();

 private:
  static constexpr Vertex kNone = -1;
  enum class Tie : std::uint8_t { kFree, kSource, kSink };

  struct Node {
    TimePs when = 0;              // standing: the potential; sliding: the potential + fallen_
    TimePs conflict = kInfinite;  // sliding: value of fallen_ at which an arc from a standing vertex runs out of slack
    Vertex parent = kNone;        // next vertex towards the root of its tree
    Arc parent_arc = kBundle;
    Tie tie = Tie::kFree;
    bool stands = false;
    bool queued = false;
  };
  static_assert(sizeof(Node) == 32);

  struct Event {
    TimePs fallen;
    Vertex vertex;
    bool operator<(const Event& other) const { return fallen > other.fallen; }  // the earliest on top
  };

  [[nodiscard]] TimePs potential(const Node& v) const { return v.stands ? v.when : v.when - fallen_; }

  template <class Visit>
  void for_arcs_from(Vertex v, Visit visit) const;
  template <class Visit>
  void for_arcs_into(Vertex v, Visit visit) const;

  void expect_conflict(Vertex v, TimePs at);
  void stand(Vertex v);
  void slide(Vertex v);
  void tie(Vertex v, Tie to, Vertex parent, Arc arc);
  void grow_source_tree();
  void grow_sink_tree();
  void cut(Vertex v, std::vector<Vertex>& freed);
  void tie_to_sink(const std::vector<Vertex>& freed);
  void resolve(Vertex v);
  void augment(Vertex from, Vertex to, Arc arc);
  void handle(const Event& event);
  void fall_to(TimePs fallen);
  void pass_t_star();
  void sample_until(TimePs fallen);
  TimePs grid_after(TimePs now_ps);
  void take_sample(TimePs time_ps);
  void add_vertex();
  bool cancelled();

  Sampling sampling_;
  const Progress& progress_;
  VisitSample visit_;
  Graph dag_;
  TimePs t_min_ps_, t_max_ps_;
  std::vector<TimePs> latest_end_ps_;  // (num_instructions) at t_max
  ResidualGraph graph_;
  std::vector<Node> nodes_;

  std::vector<Vertex> due_;  // sliding vertices with an arc from a standing one and no slack
  std::size_t next_due_ = 0;
  std::priority_queue<Event> events_;
  std::vector<TimePs> queued_conflict_;  // per vertex: its earliest event in events_

  TimePs fallen_ = 0;
  PowerUw flow_value_ = 0;
  EnergyAj energy_aj_ = 0;
  bool at_t_min_ = false;
  bool stopped_ = false;  // by a visit
  TimePs next_sample_ps_ = kNoTime;
  std::int32_t grid_index_ = 0;
  std::size_t num_extra_ = 0;  // taken or passed over
  bool passed_t_star_ = false;
  FrontierResult result_;

  std::vector<Vertex> fresh_, full_, freed_;
  std::int64_t steps_ = 0;
  std::chrono::steady_clock::time_point next_progress_ = std::chrono::steady_clock::now();
};

// Neighbours in time become neighbours in memory.
std::vector<std::int32_t> order_of_time(const Graph& dag, std::span<const TimePs> end_ps) {
  std::vector<std::int32_t> order = dag.order;
  std::ranges::stable_sort(order, {}, [&](std::int32_t i) { return end_ps[i]; });
  return order;
}

// Starts at t_max: every instruction at its cheapest and as late as possible, so that all are tied to the sink.
Trace::Trace(const FrontierProblem& problem, const Sampling& sampling, const Progress& progress, const VisitSample& visit)
    : sampling_(sampling),
      progress_(progress),
      visit_(visit),
      dag_(static_cast<std::int32_t>(problem.curve_of.size()), problem.edge_from, problem.edge_to),
      t_min_ps_(std::ranges::max(earliest_ends(dag_, extreme_durations(problem, true)))),
      t_max_ps_(std::ranges::max(earliest_ends(dag_, extreme_durations(problem, false)))),
      latest_end_ps_(latest_ends(dag_, extreme_durations(problem, false), t_max_ps_)),
      graph_(problem, dag_, order_of_time(dag_, latest_end_ps_)),
      nodes_(graph_.num_vertices()),
      queued_conflict_(graph_.num_vertices(), kInfinite) {
  for (std::int32_t i = 0; i < dag_.size(); ++i) {
    const Vertex begin = graph_.begin_of(i);
    nodes_[begin].when = latest_end_ps_[i] - graph_.bundle(begin).filling_ps;
    nodes_[begin + 1].when = latest_end_ps_[i];
  }
  nodes_[graph_.source()].tie = Tie::kSource;
  nodes_[graph_.source()].stands = true;
  nodes_[graph_.sink()].tie = Tie::kSink;
  nodes_[graph_.sink()].when = t_max_ps_;
  fresh_.push_back(graph_.sink());
  grow_sink_tree();
}

// Calls visit(to, arc, slack) for every residual arc from v, never the sink; visit returns true to stop.
template <class Visit>
void Trace::for_arcs_from(Vertex v, Visit visit) const {
  const TimePs at = potential(nodes_[v]);
  if (ResidualGraph::is_end(v)) {
    for (const auto& link : graph_.links(v)) {
      if (visit(link.other, link.arc, potential(nodes_[link.other]) - at)) return;
    }
    const auto& b = graph_.bundle(v);
    if (b.flow > 0) visit(v - 1, kBundle, b.filled_ps - (at - potential(nodes_[v - 1])));
  } else {
    if (visit(v + 1, kBundle, potential(nodes_[v + 1]) - at - graph_.bundle(v).filling_ps)) return;
    for (const auto& link : graph_.links(v)) {
      if (graph_.flow(link.arc) > 0 && visit(link.other, link.arc, TimePs{0})) return;
    }
  }
}

// Calls visit(from, arc, slack) for every residual arc into v, never the source; visit returns true to stop.
template <class Visit>
void Trace::for_arcs_into(Vertex v, Visit visit) const {
  const TimePs at = potential(nodes_[v]);
  if (!ResidualGraph::is_end(v)) {
    for (const auto& link : graph_.links(v)) {
      if (visit(link.other, link.arc, at - potential(nodes_[link.other]))) return;
    }
    const auto& b = graph_.bundle(v);
    if (b.flow > 0) visit(v + 1, kBundle, b.filled_ps - (potential(nodes_[v + 1]) - at));
  } else {
    if (visit(v - 1, kBundle, at - potential(nodes_[v - 1]) - graph_.bundle(v).filling_ps)) return;
    for (const auto& link : graph_.links(v)) {
      if (graph_.flow(link.arc) > 0 && visit(link.other, link.arc, TimePs{0})) return;
    }
  }
}

void Trace::expect_conflict(Vertex v, TimePs at) {
  Node& node = nodes_[v];
  if (at <= fallen_) {
    if (!node.queued) {
      node.queued = true;
      due_.push_back(v);
    }
  } else if (at < node.conflict) {
    node.conflict = at;
    if (at < queued_conflict_[v]) {
      queued_conflict_[v] = at;
      events_.push({at, v});
    }
  }
}

void Trace::stand(Vertex v) {
  nodes_[v].when -= fallen_;
  nodes_[v].stands = true;
  nodes_[v].conflict = kInfinite;
  ++result_.num_moves;
}

void Trace::slide(Vertex v) {
  nodes_[v].when += fallen_;
  nodes_[v].stands = false;
  ++result_.num_moves;
}

void Trace::tie(Vertex v, Tie to, Vertex parent, Arc arc) {
  Node& node = nodes_[v];
  node.tie = to;
  node.parent = parent;
  node.parent_arc = arc;
  fresh_.push_back(v);
}

// Ties all that fresh_ reaches without slack and without a conflict; expects the conflicts.
void Trace::grow_source_tree() {
  for (std::size_t k = 0; k < fresh_.size(); ++k) {
    const Vertex v = fresh_[k];
    for_arcs_from(v, [&](Vertex to, Arc arc, TimePs slack) {
      const Node& node = nodes_[to];
      if (slack == 0 && node.tie == Tie::kFree) {
        if (!node.stands) stand(to);
        tie(to, Tie::kSource, v, arc);
      } else if (!node.stands) {
        expect_conflict(to, fallen_ + slack);
      }
      return false;
    });
  }
  fresh_.clear();
}

void Trace::grow_sink_tree() {
  for (std::size_t k = 0; k < fresh_.size(); ++k) {
    const Vertex v = fresh_[k];
    TimePs least = kInfinite;
    for_arcs_into(v, [&](Vertex from, Arc arc, TimePs slack) {
      const Node& node = nodes_[from];
      if (slack == 0 && node.tie == Tie::kFree) {
        if (node.stands) slide(from);
        tie(from, Tie::kSink, v, arc);
      } else if (node.stands) {
        least = std::min(least, slack);
      }
      return false;
    });
    if (least != kInfinite) expect_conflict(v, fallen_ + least);
  }
  fresh_.clear();
}

// Unties v and all that hangs on it.
void Trace::cut(Vertex v, std::vector<Vertex>& freed) {
  if (nodes_[v].tie == Tie::kFree) return;
  std::size_t k = freed.size();
  const auto untie = [&](Vertex u) {
    nodes_[u].tie = Tie::kFree;
    nodes_[u].parent = kNone;
    freed.push_back(u);
  };
  untie(v);
  for (; k < freed.size(); ++k) {
    const Vertex u = freed[k];
    if (nodes_[u ^ 1].parent == u) untie(u ^ 1);
    for (const auto& link : graph_.links(u)) {
      if (nodes_[link.other].parent == u) untie(link.other);
    }
  }
}

// Ties the freed sliding vertices to the sink that another arc ties to it, and all that this reaches. (Standing ones are left
// free: trying the same for them costs more than it spares.)
void Trace::tie_to_sink(const std::vector<Vertex>& freed) {
  for (const Vertex v : freed) {
    if (nodes_[v].tie != Tie::kFree) continue;
    for_arcs_from(v, [&](Vertex to, Arc arc, TimePs slack) {
      if (slack != 0 || nodes_[to].tie != Tie::kSink) return false;
      tie(v, Tie::kSink, to, arc);
      return true;
    });
    grow_sink_tree();
  }
}

// Settles the most pressing conflict of a sliding vertex, or foresees when there will be one.
void Trace::resolve(Vertex v) {
  Node& node = nodes_[v];
  if (node.stands) return;
  node.conflict = kInfinite;
  Vertex from = kNone;
  Arc arc = kBundle;
  TimePs least = kInfinite;
  for_arcs_into(v, [&](Vertex u, Arc a, TimePs slack) {
    const Node& other = nodes_[u];
    if (other.stands && (slack < least || (slack == least && other.tie == Tie::kSource))) {
      least = slack;
      from = u;
      arc = a;
    }
    return false;
  });
  if (from == kNone) return;
  if (least > 0) {
    expect_conflict(v, fallen_ + least);
  } else if (nodes_[from].tie == Tie::kSource && node.tie == Tie::kSink) {
    augment(from, v, arc);
  } else if (nodes_[from].tie == Tie::kSource) {
    stand(v);
    tie(v, Tie::kSource, from, arc);
    grow_source_tree();
  } else {  // `from` is tied to nothing: it slides along
    slide(from);
    if (node.tie == Tie::kSink) {
      tie(from, Tie::kSink, v, arc);
      grow_sink_tree();
    } else {
      expect_conflict(from, fallen_);
    }
    expect_conflict(v, fallen_);  // there may be more
  }
}

void Trace::augment(Vertex from, Vertex to, Arc arc) {
  PowerUw amount = graph_.capacity(from, arc);
  for (Vertex v = from; v != graph_.source(); v = nodes_[v].parent) {
    amount = std::min(amount, graph_.capacity(nodes_[v].parent, nodes_[v].parent_arc));
  }
  for (Vertex v = to; v != graph_.sink(); v = nodes_[v].parent)
    amount = std::min(amount, graph_.capacity(v, nodes_[v].parent_arc));
  if (amount == kInfinite) {  // every instruction on this path is at its fastest
    at_t_min_ = true;
    return;
  }
  flow_value_ += amount;
  ++result_.num_augmentations;
  graph_.push(from, arc, amount);
  full_.clear();
  for (Vertex v = from; v != graph_.source(); v = nodes_[v].parent) {
    if (graph_.push(nodes_[v].parent, nodes_[v].parent_arc, amount)) full_.push_back(v);
  }
  const std::size_t num_on_source_side = full_.size();
  for (Vertex v = to; v != graph_.sink(); v = nodes_[v].parent) {
    if (graph_.push(v, nodes_[v].parent_arc, amount)) full_.push_back(v);
  }
  freed_.clear();
  for (std::size_t k = num_on_source_side; k-- > 0;) cut(full_[k], freed_);
  freed_.clear();
  for (std::size_t k = full_.size(); k-- > num_on_source_side;) cut(full_[k], freed_);
  tie_to_sink(freed_);
  expect_conflict(to, fallen_);
}

void Trace::handle(const Event& event) {
  const Vertex v = event.vertex;
  if (event.fallen != queued_conflict_[v]) return;
  queued_conflict_[v] = kInfinite;
  Node& node = nodes_[v];
  if (node.stands || node.conflict == kInfinite) return;
  if (node.conflict == event.fallen) {  // slack may have grown since, because its neighbours changed their motion or length
    TimePs least = kInfinite;
    for_arcs_into(v, [&](Vertex from, Arc, TimePs slack) {
      if (nodes_[from].stands) least = std::min(least, slack);
      return false;
    });
    node.conflict = kInfinite;
    if (least == kInfinite) return;
    if (fallen_ + least == event.fallen) {
      fall_to(event.fallen);
      resolve(v);
    } else {
      expect_conflict(v, fallen_ + least);
    }
  } else {
    queued_conflict_[v] = node.conflict;
    events_.push({node.conflict, v});
  }
}

void Trace::add_vertex() {
  const TimePs now_ps = t_max_ps_ - fallen_;
  if (!result_.time_ps.empty() && result_.slope_uw.back() == flow_value_) return;
  if (!result_.time_ps.empty() && result_.time_ps.back() == now_ps) {
    result_.slope_uw.back() = flow_value_;
    return;
  }
  result_.time_ps.push_back(now_ps);
  result_.slope_uw.push_back(flow_value_);
  result_.energy_aj.push_back(energy_aj_);
}

void Trace::pass_t_star() {
  if (passed_t_star_) return;
  passed_t_star_ = true;
  result_.t_star_ps = t_max_ps_ - fallen_;
  grid_index_ = 0;
  next_sample_ps_ = sampling_.num_to_t_star > 0 ? result_.t_star_ps : kNoTime;
}

void Trace::fall_to(TimePs fallen) {
  if (fallen == fallen_) return;
  if (flow_value_ >= sampling_.blocking_uw) pass_t_star();
  add_vertex();
  sample_until(fallen);
  energy_aj_ += static_cast<EnergyAj>(flow_value_) * (fallen - fallen_);
  fallen_ = fallen;
}

// Takes the samples that lie between here and `fallen`, where no vertex changes its motion.
void Trace::sample_until(TimePs fallen) {
  const TimePs until_ps = t_max_ps_ - fallen;
  const auto& extra = sampling_.extra_ps;
  while (num_extra_ < extra.size() && extra[num_extra_] > t_max_ps_) ++num_extra_;
  for (;;) {
    const TimePs extra_ps = num_extra_ < extra.size() ? extra[num_extra_] : kNoTime;
    const TimePs next_ps = std::max(next_sample_ps_, extra_ps);
    if (next_ps <= until_ps) return;
    take_sample(next_ps);
    if (stopped_) return;
    if (extra_ps == next_ps) ++num_extra_;
    if (next_sample_ps_ == next_ps) next_sample_ps_ = grid_after(next_ps);
  }
}

// The next time of the grid; kNoTime if there is none. Down to T* the steps are even, from there to T_min they shrink.
TimePs Trace::grid_after(TimePs now_ps) {
  const TimePs from_ps = passed_t_star_ ? result_.t_star_ps : t_max_ps_;
  const std::int32_t num_steps = passed_t_star_ ? sampling_.num_to_t_star - 1 : sampling_.num_beyond;
  while (++grid_index_ <= num_steps) {
    const TimePs time_ps = grid_time(t_min_ps_, from_ps, grid_index_, num_steps, passed_t_star_);
    if (time_ps < now_ps) return time_ps;
  }
  return kNoTime;
}

void Trace::take_sample(TimePs time_ps) {
  auto& values = result_.sample_values;
  const std::size_t n = latest_end_ps_.size();
  if (visit_) values.clear();
  const std::size_t begin = values.size();  // memory was reserved: the spans of earlier samples stay valid
  values.resize(begin + 3 * n + dag_.predecessors.size());
  std::int64_t* const start = values.data() + begin;
  std::int64_t* const end = start + n;
  std::int64_t* const price = end + n;
  const TimePs fallen = t_max_ps_ - time_ps;
  const auto when = [&](const Node& v) { return v.stands ? v.when : v.when - fallen; };
  for (std::size_t i = 0; i < n; ++i) {
    const Vertex begin_vertex = graph_.begin_of(static_cast<std::int32_t>(i));
    start[i] = when(nodes_[begin_vertex]);
    end[i] = when(nodes_[begin_vertex + 1]);
    price[i] = graph_.bundle(begin_vertex).flow;
  }
  std::int64_t* const flow = price + n;
  for (std::int32_t i = 0; i < dag_.size(); ++i) {
    for (std::int32_t k = dag_.predecessor_begin[i]; k < dag_.predecessor_begin[i + 1]; ++k) {
      const Vertex from = graph_.begin_of(dag_.predecessors[k]) + 1;
      const auto links = graph_.links(graph_.begin_of(i));
      flow[k] = graph_.flow(std::ranges::find(links, from, &ResidualGraph::Link::other)->arc);
    }
  }
  const Sample sample{.time_ps = time_ps,
                      .start_ps = {start, n},
                      .end_ps = {end, n},
                      .price_uw = {price, n},
                      .slope_uw = flow_value_,
                      .flow_uw = {flow, dag_.predecessors.size()}};
  if (!visit_) {
    result_.samples.push_back(sample);
  } else if (!visit_(sample)) {
    stopped_ = true;
  }
}

bool Trace::cancelled() {
  if (++steps_ % 4096 != 0 || !progress_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_progress_) return false;
  next_progress_ = now + std::chrono::milliseconds(50);
  const double share = static_cast<double>(fallen_) / static_cast<double>(std::max<TimePs>(t_max_ps_ - t_min_ps_, 1));
  result_.cancelled = !progress_(share * share);  // the frontier's pieces are the shorter, the steeper it is
  return result_.cancelled;
}

FrontierResult Trace::run() {
  const std::size_t most_samples = sampling_.extra_ps.size() + static_cast<std::size_t>(sampling_.num_to_t_star) +
                                   static_cast<std::size_t>(sampling_.num_beyond) + 1;
  result_.sample_values.reserve((3 * latest_end_ps_.size() + dag_.predecessors.size()) * (visit_ ? 1 : most_samples));
  next_sample_ps_ = sampling_.num_beyond > 0 ? t_max_ps_ : kNoTime;
  for_arcs_from(graph_.source(), [&](Vertex to, Arc, TimePs slack) {
    expect_conflict(to, fallen_ + slack);
    return false;
  });
  while (!at_t_min_ && !stopped_ && !cancelled()) {
    if (next_due_ < due_.size()) {
      const Vertex v = due_[next_due_++];
      if (next_due_ == due_.size()) {
        due_.clear();
        next_due_ = 0;
      }
      nodes_[v].queued = false;
      resolve(v);
    } else {
      const Event event = events_.top();  // there always is one: the source stands, the sink slides, and T_min is not reached
      events_.pop();
      handle(event);
    }
  }
  if (result_.cancelled || stopped_) return std::move(result_);
  if (fallen_ != t_max_ps_ - t_min_ps_) throw std::logic_error("the trace ended before the fastest iteration");
  pass_t_star();  // every further piece would be infinitely steep
  sample_until(fallen_ + 1);
  flow_value_ = 0;
  if (result_.time_ps.empty() || result_.time_ps.back() != t_min_ps_) {
    result_.time_ps.push_back(t_min_ps_);
    result_.slope_uw.push_back(0);
    result_.energy_aj.push_back(energy_aj_);
  }
  return std::move(result_);
}

}  // namespace

std::vector<TimePs> extreme_durations(const FrontierProblem& problem, bool fastest) {
  std::vector<TimePs> duration_ps;
  for (const std::int32_t curve : problem.curve_of) {
    duration_ps.push_back(problem.hull_ps[fastest ? problem.hull_begin[curve] : problem.hull_begin[curve + 1] - 1]);
  }
  return duration_ps;
}

TimePs grid_time(TimePs t_min_ps, TimePs from_ps, std::int32_t index, std::int32_t num_steps, bool shrinks) {
  const double left = 1 - static_cast<double>(index) / num_steps;
  return t_min_ps + std::llround((shrinks ? left * std::sqrt(left) : left) * static_cast<double>(from_ps - t_min_ps));
}

FrontierResult trace_samples(const FrontierProblem& problem, std::span<const TimePs> extra_ps, const VisitSample& visit,
                             const Progress& progress) {
  return Trace(problem, {.extra_ps = extra_ps}, progress, visit).run();
}

FrontierResult solve_frontier(const FrontierProblem& problem, const Sampling& sampling, const Progress& progress) {
  check(problem);
  return Trace(problem, sampling, progress, {}).run();
}

}  // namespace perseus
