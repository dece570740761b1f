// perseus_dist._solver: arrays in, arrays out, the GIL released in between. The typed face is _solver.pyi; the checks that
// users see are made in perseus_dist.planning.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>

#include <chrono>
#include <optional>
#include <vector>

#include "perseus/frontier.hpp"
#include "perseus/graph.hpp"
#include "perseus/realise.hpp"
#include "perseus/replay.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Output = nb::ndarray<nb::numpy, T>;

template <class T>
std::span<const T> view(const Input<T>& array) {
  return {array.data(), array.size()};
}

// Hands a vector over to numpy without a copy.
template <class T>
Output<T> give(std::vector<T> values, std::initializer_list<std::size_t> shape) {
  auto* owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Output<T>(owned->data(), shape, owner);
}

template <class T>
Output<T> give(std::vector<T> values) {
  const std::size_t size = values.size();
  return give(std::move(values), {size});
}

Output<std::int64_t> copy(std::span<const std::int64_t> values) { return give(std::vector(values.begin(), values.end())); }

// Calls back into Python a few times a second, so that Ctrl-C works and a progress bar moves. What Python raises passes through.
class PythonProgress {
 public:
  explicit PythonProgress(std::optional<nb::callable> callback) : callback_(std::move(callback)) {}

  bool operator()(double done) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return true;
    next_ = now + std::chrono::milliseconds(50);
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return !callback_ || nb::cast<bool>((*callback_)(done));
  }

 private:
  std::optional<nb::callable> callback_;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
};

// Owns what the spans of a menu point to.
struct PythonMenu {
  Input<std::int32_t> curve_begin, clock_mhz;
  Input<std::int64_t> duration_ps, effective_uj;
  Input<std::int32_t> choice_begin, choice, curve_of, previous_on_rank;

  [[nodiscard]] perseus::Menu menu() const {
    return {.curve_begin = view(curve_begin),
            .clock_mhz = view(clock_mhz),
            .duration_ps = view(duration_ps),
            .effective_uj = view(effective_uj),
            .choice_begin = view(choice_begin),
            .choice = view(choice),
            .curve_of = view(curve_of),
            .previous_on_rank = view(previous_on_rank)};
  }
};

std::int64_t uj_from_aj(perseus::EnergyAj energy) {
  return static_cast<std::int64_t>((energy + perseus::kAjPerUj / 2) / perseus::kAjPerUj);
}

perseus::FrontierResult solve_frontier(const Input<std::int32_t>& hull_begin, const Input<std::int64_t>& hull_ps,
                                       const Input<std::int64_t>& slope_uw, const Input<std::int32_t>& curve_of,
                                       const Input<std::int32_t>& edge_from, const Input<std::int32_t>& edge_to,
                                       std::int64_t blocking_uw, std::int32_t num_to_t_star, std::int32_t num_beyond,
                                       const Input<std::int64_t>& extra_ps, double tolerance, std::int64_t least_uj,
                                       std::optional<nb::callable> progress) {
  const perseus::FrontierProblem problem{.hull_begin = view(hull_begin),
                                         .hull_ps = view(hull_ps),
                                         .slope_uw = view(slope_uw),
                                         .curve_of = view(curve_of),
                                         .edge_from = view(edge_from),
                                         .edge_to = view(edge_to)};
  const perseus::Sampling sampling{
      .blocking_uw = blocking_uw, .num_to_t_star = num_to_t_star, .num_beyond = num_beyond, .extra_ps = view(extra_ps)};
  PythonProgress report(std::move(progress));
  const nb::gil_scoped_release released;
  if (tolerance == 0) return perseus::solve_frontier(problem, sampling, std::ref(report));
  const perseus::Tolerance within{.share = tolerance, .least_uj = least_uj};
  return perseus::solve_frontier_within(problem, sampling, within, std::ref(report));
}

nb::tuple replay(const PythonMenu& menu, const Input<std::int32_t>& edge_from, const Input<std::int32_t>& edge_to,
                 const Input<std::int32_t>& plan, const Input<std::int64_t>& latency_ps) {
  const perseus::Menu spans = menu.menu();
  const perseus::Graph graph(spans.num_instructions(), view(edge_from), view(edge_to));
  perseus::Replay player(graph, spans, view(latency_ps));
  const perseus::Outcome outcome = player.play(view(plan));
  std::vector<std::uint8_t> changes(spans.num_instructions());
  for (std::int32_t i = 0; i < spans.num_instructions(); ++i) changes[i] = player.changes(i, view(plan));
  return nb::make_tuple(outcome.time_ps, outcome.effective_uj, give(std::move(player.start_ps)), give(std::move(player.end_ps)),
                        give(std::move(player.effective_uj)), give(std::move(changes)));
}

nb::tuple realise(const PythonMenu& menu, const Input<std::int32_t>& edge_from, const Input<std::int32_t>& edge_to,
                  const perseus::FrontierResult& frontier, const Input<std::int32_t>& microbatch, std::int64_t blocking_uw,
                  const Input<std::int64_t>& latency_ps, const Input<std::int64_t>& wanted_ps,
                  std::optional<nb::callable> progress) {
  const perseus::Menu spans = menu.menu();
  PythonProgress report(std::move(progress));
  std::vector<std::int64_t> time_ps, effective_uj;
  std::vector<std::int32_t> num_changes;
  std::vector<std::uint16_t> plans;
  {
    const nb::gil_scoped_release released;
    const perseus::Graph graph(spans.num_instructions(), view(edge_from), view(edge_to));
    for (const auto& [plan, outcome] : perseus::realise(graph, spans, frontier, view(microbatch), blocking_uw, view(latency_ps),
                                                        view(wanted_ps), std::ref(report))) {
      time_ps.push_back(outcome.time_ps);
      effective_uj.push_back(outcome.effective_uj);
      num_changes.push_back(outcome.num_changes);
      plans.insert(plans.end(), plan.begin(), plan.end());
    }
  }
  const std::size_t num_plans = time_ps.size();
  return nb::make_tuple(give(std::move(time_ps)), give(std::move(effective_uj)), give(std::move(num_changes)),
                        give(std::move(plans), {num_plans, static_cast<std::size_t>(spans.num_instructions())}));
}

}  // namespace

NB_MODULE(_solver, m) {
  nb::set_leak_warnings(false);  // what a program still holds at its exit is its own affair, and no news to its user
  m.doc() = "The native planner: the exact frontier, realised plans and their replay.";

  nb::class_<perseus::FrontierResult>(m, "FrontierResult")
      .def_prop_ro(
          "time_ps", [](const perseus::FrontierResult& r) { return give(std::vector(r.time_ps)); }, nb::rv_policy::automatic)
      .def_prop_ro(
          "slope_uw", [](const perseus::FrontierResult& r) { return give(std::vector(r.slope_uw)); }, nb::rv_policy::automatic)
      .def_prop_ro(
          "energy_uj",
          [](const perseus::FrontierResult& r) {
            std::vector<std::int64_t> energy_uj;
            for (const perseus::EnergyAj energy : r.energy_aj) energy_uj.push_back(uj_from_aj(energy));
            return give(std::move(energy_uj));
          },
          nb::rv_policy::automatic)
      .def_ro("t_star_ps", &perseus::FrontierResult::t_star_ps)
      .def_ro("share_below", &perseus::FrontierResult::share_below)
      .def_ro("num_augmentations", &perseus::FrontierResult::num_augmentations)
      .def_ro("num_moves", &perseus::FrontierResult::num_moves)
      .def_ro("cancelled", &perseus::FrontierResult::cancelled)
      .def_prop_ro("num_samples", [](const perseus::FrontierResult& r) { return r.samples.size(); })
      .def("sample", [](const perseus::FrontierResult& r, std::size_t k) {
        if (k >= r.samples.size()) throw nb::index_error();
        const perseus::Sample& s = r.samples[k];
        return nb::make_tuple(s.time_ps, copy(s.start_ps), copy(s.end_ps), copy(s.price_uw));
      });

  nb::class_<PythonMenu>(m, "Menu").def(
      "__init__",
      [](PythonMenu* self, Input<std::int32_t> curve_begin, Input<std::int32_t> clock_mhz, Input<std::int64_t> duration_ps,
         Input<std::int64_t> effective_uj, Input<std::int32_t> choice_begin, Input<std::int32_t> choice,
         Input<std::int32_t> curve_of, Input<std::int32_t> previous_on_rank) {
        new (self)
            PythonMenu{std::move(curve_begin),  std::move(clock_mhz), std::move(duration_ps), std::move(effective_uj),
                       std::move(choice_begin), std::move(choice),    std::move(curve_of),    std::move(previous_on_rank)};
      },
      nb::kw_only(), "curve_begin"_a.noconvert(), "clock_mhz"_a.noconvert(), "duration_ps"_a.noconvert(),
      "effective_uj"_a.noconvert(), "choice_begin"_a.noconvert(), "choice"_a.noconvert(), "curve_of"_a.noconvert(),
      "previous_on_rank"_a.noconvert());

  m.def("solve_frontier", &solve_frontier, nb::kw_only(), "hull_begin"_a.noconvert(), "hull_ps"_a.noconvert(),
        "slope_uw"_a.noconvert(), "curve_of"_a.noconvert(), "edge_from"_a.noconvert(), "edge_to"_a.noconvert(), "blocking_uw"_a,
        "num_to_t_star"_a, "num_beyond"_a, "extra_ps"_a.noconvert(), "tolerance"_a = 0.0, "least_uj"_a = 0,
        "progress"_a.none() = nb::none());
  m.def("replay", &replay, nb::kw_only(), "menu"_a, "edge_from"_a.noconvert(), "edge_to"_a.noconvert(), "plan"_a.noconvert(),
        "latency_ps"_a.noconvert());
  m.def("realise", &realise, nb::kw_only(), "menu"_a, "edge_from"_a.noconvert(), "edge_to"_a.noconvert(), "frontier"_a,
        "microbatch"_a.noconvert(), "blocking_uw"_a, "latency_ps"_a.noconvert(), "wanted_ps"_a.noconvert(),
        "progress"_a.none() = nb::none());
}
