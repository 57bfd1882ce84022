// Logging in: name and password become a cookie that no script can read.

const form = document.getElementById("form");
const problem = document.getElementById("problem");
const go = document.getElementById("go");

/** Where to go afterwards: a path of this center and nothing else. */
function next() {
  const wanted = new URLSearchParams(location.search).get("next") ?? "/";
  const target = new URL(wanted, location.origin);
  // "/.//elsewhere" has our origin too, but its path by itself would name another host.
  const ours = target.origin === location.origin && !target.pathname.startsWith("//");
  return ours ? target.pathname : "/";
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  problem.textContent = "";
  go.disabled = true;
  try {
    const answer = await fetch("/api/v1/session", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ name: form.username.value, password: form.password.value }),
      signal: AbortSignal.timeout(10_000),
    });
    if (answer.ok) {
      location.replace(next());
      return;
    }
    const { error } = await answer.json();
    problem.textContent = `${error.message}.${error.hint ? ` ${error.hint}.` : ""}`;
  } catch {
    problem.textContent = "The center does not answer.";
  } finally {
    go.disabled = false;
  }
  form.password.select();
});
form.username.focus();
