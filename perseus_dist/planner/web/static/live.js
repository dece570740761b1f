// A stream of events, open only while the page is looked at: hidden tabs cost the planner nothing.

export function follow(url, handlers) {
  const shown = document.getElementById("live");
  let source = null;

  function say(text, isLive) {
    if (shown.textContent !== text) shown.textContent = text;
    shown.classList.toggle("on", isLive);
  }

  function open() {
    if (source !== null) return;
    source = new EventSource(url);
    source.onopen = () => say("live", true);
    source.onerror = () => {
      const isOver = source.readyState === EventSource.CLOSED;
      say(isOver ? "not live: load the page again" : "connecting again", false);
    };
    source.addEventListener("end", (event) => {
      if (JSON.parse(event.data).why === "restart") return; // the browser connects again
      close("not live: load the page again");
    });
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
  }

  function close(text) {
    if (source !== null) source.close();
    source = null;
    say(text, false);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close("paused");
    else open();
  });
  window.addEventListener("pagehide", () => close("paused"));
  window.addEventListener("pageshow", () => open());
  if (!document.hidden) open();
}
