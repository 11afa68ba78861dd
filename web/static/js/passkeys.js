// What django-allauth's passkey scripts leave to the page: to say what went wrong, and to take Enter for the button.

const SENTENCES = {
  NotAllowedError: "The browser got no passkey: it was cancelled, took too long, or there is none for this console.",
  InvalidStateError: "This device or security key has a passkey of this account already.",
  NotSupportedError: "This device or security key can’t do that. A security key without a PIN can’t log in alone.",
  ConstraintError: "This device or security key can’t do that. A security key without a PIN can’t log in alone.",
  SecurityError: "The browser doesn’t allow passkeys at this address.",
};

document.addEventListener("allauth.error", (event) => {
  const trouble = document.getElementById("passkey-trouble");
  if (!trouble) {
    return;
  }
  event.preventDefault();
  const exception = event.detail.exception;
  trouble.querySelector("p").textContent = SENTENCES[exception.name] ?? `The passkey did not work: ${exception.message}`;
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
