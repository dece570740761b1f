// The target's slider: time and energy of the plan that it would bring, before it is set.

const ENERGIES = [["GJ", 1e9], ["MJ", 1e6], ["kJ", 1e3]];

function seconds(time) {
  const [value, unit] = time < 1 ? [time * 1e3, "ms"] : [time, "s"];
  const whole = Math.max(1, Math.floor(Math.log10(Math.max(value, 1e-9))) + 1);
  return `${fixed(value, Math.max(0, 4 - whole))} ${unit}`;
}

function joules(energy) {
  const [unit, size] = ENERGIES.find(([, size]) => energy >= size) ?? ["J", 1];
  return `${fixed(energy / size, size === 1 ? 1 : 2)} ${unit}`;
}

function percent(share) {
  const text = (100 * Math.abs(share)).toFixed(1);
  return `${text === "0.0" ? "" : share > 0 ? "+" : "−"}${text} %`;
}

function fixed(value, digits) {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function targetForm(form) {
  if (form === null) return { frontierChanged() {} };
  const slider = form.elements.position;
  const preview = document.getElementById("preview");
  const answer = document.getElementById("answer");
  const button = document.getElementById("apply");
  let choices = [];
  let isTouched = false;

  function mark() {
    const [chart, shown] = [document.getElementById("chart"), document.getElementById("looked-at")];
    const choice = choices[slider.value];
    if (chart === null || choice === undefined) return;
    const [lowTime, highTime, lowEnergy, highEnergy] = chart.dataset.scale.split(" ").map(Number);
    const [left, right, top, bottom] = chart.dataset.plot.split(" ").map(Number);
    const x = left + ((choice[0] - lowTime) / (highTime - lowTime)) * (right - left);
    const y = bottom - ((choice[1] - lowEnergy) / (highEnergy - lowEnergy)) * (bottom - top);
    const line = shown.querySelector("line");
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    const circle = shown.querySelector("circle");
    circle.setAttribute("cx", x);
    circle.setAttribute("cy", y);
    shown.setAttribute("visibility", isTouched ? "visible" : "hidden");
  }

  function show() {
    const choice = choices[slider.value];
    if (choice === undefined) return;
    const [time, energy, slower, saved] = choice;
    const parts = [["b", seconds(time)], ["span", `${percent(slower)} time`], ["b", joules(energy)], ["span", `${percent(-saved)} energy`]];
    const nodes = parts.flatMap(([name, text]) => {
      const node = document.createElement(name);
      node.textContent = text;
      return [node, " "];
    });
    preview.replaceChildren(...nodes);
    slider.setAttribute("aria-valuetext", parts.map(([, text]) => text).join(", "));
    mark();
  }

  async function load() {
    const response = await fetch(form.dataset.choices, { headers: { Accept: "application/json" } });
    if (!response.ok) return;
    const found = await response.json();
    const isNew = Number(form.elements.revision.value) !== found.revision;
    choices = found.choices;
    form.hidden = choices.length === 0;
    form.elements.revision.value = found.revision;
    slider.max = Math.max(0, choices.length - 1);
    if (!isTouched || isNew) {
      isTouched = false;
      slider.value = found.at;
    }
    show();
  }

  slider.addEventListener("input", () => {
    isTouched = true;
    answer.textContent = "";
    show();
  });

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const body = new URLSearchParams(new FormData(form));
      const response = await fetch(form.action, { method: "POST", body, headers: { Accept: "application/json" } });
      const { accepted, sentence } = await response.json();
      answer.className = accepted ? "good" : "warn";
      answer.textContent = accepted ? `Set: ${sentence}.` : `Refused: ${sentence}.`;
      if (accepted) isTouched = false;
      await load();
    } catch {
      answer.className = "warn";
      answer.textContent = "The planner does not answer; look at the target in force before you try again.";
    } finally {
      button.disabled = false;
      button.focus();
    }
  });

  load();
  return { frontierChanged: load };
}
