// What ended badly in the last 15 minutes, by reason, each with its remedy.
import { keepChildren, make, setAttribute, setText } from "./dom.js";
import { longDuration, said, word } from "./words.js";

const section = document.getElementById("problems");

/** Show the problems of a snapshot, the most recent first. */
export function showProblems(problems) {
  section.querySelector(".empty").hidden = problems.length > 0;
  keepChildren(section.querySelector("ul"), problems, {
    key: ({ code, kind }) => `${kind} ${code}`,
    create: () =>
      make("li", {},
        make("p", { class: "problem-head" }, make("span", { class: "badge" }), make("code"), make("span", { class: "ago" })),
        make("p", { class: "problem-counts" }), make("p", { class: "advice" })),
    update: (item, problem) => {
      const [head, counts, remedy] = item.children;
      setAttribute(item, "data-kind", problem.kind);
      setText(head.children[0], word(`problem_${problem.kind}`));
      setText(head.children[1], problem.code);
      setText(head.children[2], word("problem_ago", { time: longDuration(problem.seconds_ago) }));
      setText(counts, word("problem_counts", { minute: problem.last_minute, quarter: problem.last_15_minutes }));
      setText(remedy, said(problem.remedy));
    },
  });
}
