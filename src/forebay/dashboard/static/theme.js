// Light, dark, or as the system has it; the choice is remembered.

const REMEMBERED = "forebay.theme";

/** Apply the remembered theme and follow the control. */
export function startTheme(control) {
  apply(read());
  control.value = document.documentElement.dataset.theme;
  control.addEventListener("change", () => {
    apply(control.value);
    try {
      localStorage.setItem(REMEMBERED, control.value);
    } catch {
      // Storage may be forbidden: then the choice lasts as long as the page.
    }
  });
}

function apply(theme) {
  document.documentElement.dataset.theme = ["light", "dark"].includes(theme) ? theme : "auto";
}

function read() {
  try {
    return localStorage.getItem(REMEMBERED);
  } catch {
    return null;
  }
}
