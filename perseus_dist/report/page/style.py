"""How ``report.html`` looks: system type, one column, two palettes; wide things scroll by themselves."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1f2328; --muted: #656d76; --hairline: #9aa2ab; --waiting: #ebebeb; --constant: #9fb3c8;
  --accent: #c8135b; --plans: #3f6fb5; --edge: #ffffff; --card: #f6f8fa; --line: #d8dee4; --warn: #9a6700;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16191d; --ink: #e3e7ec; --muted: #9aa4af; --hairline: #68717c; --waiting: #2b3037; --constant: #56687b;
    --accent: #ff6da3; --plans: #7fb0f5; --edge: #6b7480; --card: #1f242a; --line: #363d46; --warn: #e3b341;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 28px 18px 40px; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 36px 0 8px; }
a { color: var(--plans); }
p { margin: 8px 0; }
.shape { color: var(--muted); margin: 0 0 20px; }
.badge {
  display: inline-block; padding: 0 8px; border-radius: 999px; font-size: 0.8rem; font-weight: 600;
  color: var(--paper); background: var(--plans); white-space: nowrap;
}
.nothing { border-left: 3px solid var(--warn); padding: 4px 12px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 12px; margin: 0 0 20px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.tile .label, .tile .below { color: var(--muted); font-size: 0.82rem; }
.tile .value { font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums; margin: 2px 0; }
.tile.main .value { font-size: 1.9rem; line-height: 1.2; }
ul { margin: 8px 0; padding-left: 20px; color: var(--muted); font-size: 0.92rem; }
.key { color: var(--muted); font-size: 0.88rem; }
ul.trouble { color: var(--warn); }
.scroll { overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
th { color: var(--muted); font-weight: 500; vertical-align: bottom; }
th, td { text-align: right; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); }
td { vertical-align: top; white-space: nowrap; }
th.text, td.text { text-align: left; }
td.wide { white-space: normal; min-width: 240px; }
figure { margin: 32px 0 0; }
figcaption { color: var(--muted); font-size: 0.88rem; margin-top: 6px; }
.picture { overflow-x: auto; }
.picture svg { display: block; width: 100%; height: auto; min-width: 620px; }
.picture.frontier svg { max-width: 860px; }
.picture.timeline svg { min-width: 860px; }
.picture svg * { stroke-linejoin: round; stroke-linecap: butt; }
.picture .on-colour { --ink: #1f2328; --paper: #ffffff; }
footer { margin-top: 40px; color: var(--muted); font-size: 0.85rem; }
@media (max-width: 600px) {
  main { padding: 18px 14px 32px; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 8px; }
  .tile.main .value { font-size: 1.6rem; }
  .tile .value { font-size: 1rem; }
}
"""
