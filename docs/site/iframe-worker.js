/* Browsers refuse workers to a page that was opened from a disk; the search is one. There its script
 * runs in a hidden frame, which is of the page's own origin, and messages pass as a worker's would. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      const script = document.createElement("script");
      script.src = new URL(address, document.baseURI).href;
      frame.hidden = true;
      frame.srcdoc = script.outerHTML;
      this.frame = frame;
      this.started = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
      this.started.then(() => {
        frame.contentWindow.postMessage = (data) =>
          this.dispatchEvent(new MessageEvent("message", { data }));
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.started.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
