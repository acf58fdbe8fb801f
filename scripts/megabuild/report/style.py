"""The style sheet of a run's page: light or dark as the reader's system is, on a telephone and on paper."""

STYLE = """
:root { --bg:#fff; --fg:#1f2328; --dim:#667079; --line:#d8dee4; --soft:#f4f6f8; --phase:#56708c; --test:#8a5cb8;
  --cxx:#3b78c3; --cuda:#3d9150; --link:#c9801d; --gen:#8b929a; --bad:#cc3b3b; --good:#2c8a43; }
@media (prefers-color-scheme: dark) { :root { --bg:#14181d; --fg:#e2e6ea; --dim:#97a1ab; --line:#323a43;
  --soft:#1d232a;
  --phase:#7892ae; --test:#a982d3; --cxx:#5f9be4; --cuda:#5fb573; --link:#dd9d45; --gen:#7d858d; --bad:#ee7070;
  --good:#62c07a; color-scheme:dark; } }
* { box-sizing:border-box; }
body { margin:0 auto; max-width:1280px; padding:1.2rem clamp(.8rem,3vw,2rem) 3rem; background:var(--bg);
  color:var(--fg);
  font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",sans-serif; }
h1 { font-size:1.5rem; margin:0; overflow-wrap:anywhere; } h2 { font-size:1.1rem; margin:2.2rem 0 .6rem; }
p { margin:.3rem 0; } .dim { color:var(--dim); } code,pre { font:13px/1.45 ui-monospace,Menlo,Consolas,monospace; }
pre { background:var(--soft); border:1px solid var(--line); border-radius:6px; padding:.7rem; overflow-x:auto;
  margin:.5rem 0;
  white-space:pre-wrap; overflow-wrap:anywhere; }
.badge { display:inline-block; padding:.05rem .6rem; border-radius:1rem; color:var(--bg); background:var(--dim);
  font-size:.85rem; font-weight:600; vertical-align:.2rem; margin-left:.4rem; }
.badge.done { background:var(--good); } .badge.failed { background:var(--bad); }
.cards { display:grid; grid-template-columns:repeat(auto-fill,minmax(150px,1fr)); gap:.6rem; margin:1.1rem 0 0; }
.cards div { background:var(--soft); border-radius:6px; padding:.5rem .7rem; } .cards b { display:block;
  font-size:1.2rem; }
.cards span { color:var(--dim); font-size:.85rem; display:block; line-height:1.35; }
.failure { border-left:4px solid var(--bad); padding-left:.8rem; }
.keys { display:flex; flex-wrap:wrap; gap:.2rem 1rem; font-size:.85rem; color:var(--dim); margin:.2rem 0 .5rem; }
.keys i,.name i { display:inline-block; width:.8em; height:.8em; border-radius:2px; margin-right:.35em;
  vertical-align:-.05em; }
.zoom { position:absolute; opacity:0; } .zooms { float:right; font-size:.85rem; }
.zooms label { display:inline-block; padding:.1rem .55rem; border:1px solid var(--line); border-radius:4px;
  cursor:pointer; }
#z1:checked~.zooms [for=z1],#z5:checked~.zooms [for=z5],
  #z25:checked~.zooms [for=z25] { background:var(--fg);
  color:var(--bg); }
.zoom:focus-visible~.zooms { outline:2px solid var(--cxx); }
.scroll { overflow-x:auto; border:1px solid var(--line); border-radius:6px; padding:.3rem 0 .5rem; clear:both; }
.wide { display:block; width:100%; overflow:visible; } #z5:checked~.scroll .wide { width:500%; }
#z25:checked~.scroll .wide { width:2500%; } .m5,.m25 { display:none; }
#z5:checked~.scroll .m5,#z25:checked~.scroll .m5,#z25:checked~.scroll .m25 { display:inline; }
.name { position:sticky; left:0; width:max-content; max-width:100%; padding:.4rem .5rem .1rem; font-size:.85rem; }
.scroll svg text { font-size:11px; fill:#fff; pointer-events:none; } .scroll svg text.of { fill:var(--dim); }
@media (prefers-color-scheme: dark) { .scroll svg text { fill:#0d1013; } }
.chart { overflow:hidden; border-bottom:1px solid var(--line); }
.phase { fill:var(--phase); } .test { fill:var(--test); } .cxx { fill:var(--cxx); } .cuda { fill:var(--cuda); }
.link { fill:var(--link); } .gen { fill:var(--gen); } .bad { fill:var(--bad); } .b { opacity:.72; }
.busy { fill:var(--gen); opacity:.45; } .memory { fill:var(--test); opacity:.5; } .disk { fill:var(--link);
  opacity:.5; }
.line { fill:none; stroke:var(--cxx); stroke-width:1.5; vector-effect:non-scaling-stroke; }
.grid { stroke:var(--line); stroke-width:1; } .mark { stroke:var(--dim); stroke-width:1; stroke-dasharray:4 3; }
.table { overflow-x:auto; } table { border-collapse:collapse; width:100%; font-size:.9rem; }
th { text-align:left; font-weight:600; color:var(--dim); } th,td { padding:.2rem .8rem .2rem 0; vertical-align:top;
  border-bottom:1px solid var(--line); } td.n,th.n { text-align:right; white-space:nowrap; width:1%; }
td code { overflow-wrap:anywhere; } .path { min-width:14rem; } .share { min-width:5rem; width:12%; }
.share i { display:block; height:.6rem; margin-top:.45rem; border-radius:2px; min-width:1px; }
li { margin:.15rem 0; } ul { padding-left:1.2rem; margin:.4rem 0; }
@media (max-width:600px) { body { font-size:14px; } th,td { padding-right:.6rem; } }
@media print { .zooms { display:none; } body { max-width:none; padding:0; font-size:11px; } h2 { break-after:avoid; }
  .scroll,.cards div,tr,pre { break-inside:avoid; } * { print-color-adjust:exact; -webkit-print-color-adjust:exact;
  } }
"""
