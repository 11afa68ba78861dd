// What django-allauth's passkey scripts leave to the page: to say what went wrong, and to take Enter for the button.

document.addEventListener("allauth.error", (event) => {
  const trouble = document.getElementById("passkey-trouble");
  if (!trouble) {
    return;
  }
  event.preventDefault();
  const exception = event.detail.exception;
  // The page holds the sentences, in its language: data-not-allowed-error for a NotAllowedError.
  const words = trouble.dataset[exception.name.charAt(0).toLowerCase() + exception.name.slice(1)];
  trouble.querySelector("p").textContent = words ?? `${trouble.dataset.other} ${exception.message}`;
  trouble.hidden = false;
});

for (const form of document.querySelectorAll("form[data-passkey]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (event.submitter?.id !== form.dataset.passkey) {
      document.getElementById(form.dataset.passkey).click();
    }
  });
}
