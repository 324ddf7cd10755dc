// Move through the panels of a figure. Without this script the page shows the static figure.
for (const panels of document.querySelectorAll(".panels")) {
  const slider = panels.querySelector("input");
  const pictures = [...panels.querySelectorAll("[data-value]")];

  const show = () => {
    const shown = pictures[slider.value];
    for (const picture of pictures) picture.toggleAttribute("hidden", picture !== shown);
    panels.querySelector("output").value = shown.dataset.value;
    const quantity = panels.querySelector("label").textContent.trim();
    slider.setAttribute("aria-valuetext", `${quantity} ${shown.dataset.value}`);
  };

  slider.addEventListener("input", show);
  show();
  panels.hidden = false;
  panels.previousElementSibling.hidden = true;
}
