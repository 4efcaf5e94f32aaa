"""Style sheet of reports, part of each file so that one can be sent on."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --sheet: #ffffff; --ink: #1b2430; --soft: #5b6675; --rule: #e2e6ec;
  --reference: #c5731a; --contender: #2f6fd0; --own: #12937a; --other: #7d8897;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --sheet: #1a2029; --ink: #e4e8ee; --soft: #98a3b2; --rule: #2c3440;
    --reference: #e69a45; --contender: #6a9ff0; --own: #3bbf9f; --other: #8792a2;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main, footer { max-width: 74rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding: 2.5rem 0 .5rem; }
h1 { margin: 0 0 .5rem; font-size: 2.1rem; line-height: 1.15; }
h2 { margin: 2.5rem 0 .5rem; font-size: 1.35rem; }
h3 { margin: 0 0 .5rem; font-size: 1rem; }
p { margin: .4rem 0; max-width: 60rem; overflow-wrap: anywhere; }
.answer { font-size: 1.25rem; font-weight: 600; line-height: 1.35; }
figure { margin: 1rem 0; padding: 1rem 1.1rem .8rem; background: var(--sheet); border: 1px solid var(--rule);
  border-radius: .6rem; break-inside: avoid; overflow-x: auto; }
figcaption, footer { color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
figcaption { margin-top: .5rem; }
footer { padding-top: 1.5rem; padding-bottom: 3rem; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th { padding: 0 .5rem .35rem; color: var(--soft); font-size: .85rem; font-weight: 500; text-align: left;
  vertical-align: bottom; }
td { padding: .22rem .5rem; border-top: 1px solid var(--rule); overflow-wrap: break-word;
  vertical-align: top; }
td.text { min-width: 8rem; }
.number { text-align: right; white-space: nowrap; }
th.number { white-space: normal; }
.bars { width: 30%; min-width: 7rem; }
.bars div { height: 10px; margin-top: .35rem; border-radius: 2px; background: var(--tone, var(--other)); }
/* On a narrow screen, the cells of a table of texts stand below each other. */
@media (max-width: 40em) {
  table:not(:has(.number, .bars)) :is(tbody, tr, td) { display: block; }
  table:not(:has(.number, .bars)) :is(thead, td:empty) { display: none; }
  table:not(:has(.number, .bars)) td:not(:first-child) { border-top: 0; }
  table:not(:has(.number, .bars)) td:not(:first-child, [data-column=""])::before {
    content: attr(data-column) ": "; color: var(--soft); }
}
tr.reference td:first-child, tr.own td:first-child { font-weight: 600; }
.reference { --tone: var(--reference); }
.contender { --tone: var(--contender); }
.own { --tone: var(--own); }
.other { --tone: var(--other); }
.plot { display: block; width: 720px; height: auto; font-size: 16px; overflow: visible; }
.plot text { fill: var(--soft); }
.plot line { stroke: var(--rule); }
.plot rect { fill: var(--tone); }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin-bottom: .4rem;
  font-size: .9rem; color: var(--soft); }
.key i { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px; margin-right: .4rem;
  vertical-align: -1px; background: var(--tone); }
"""
