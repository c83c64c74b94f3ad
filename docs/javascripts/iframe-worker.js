// The search of this site runs in a worker, and browsers start no worker from the file system.
// There, and only there, the same script runs in a hidden frame, which messages reach the same way.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => {
        this.dispatchEvent(new MessageEvent("message", { data }));
      };
      this.inside.importScripts = async (...addresses) => {
        for (const address of addresses) await this.load(address);
      };
      this.load(url).then(() => {
        const early = this.waiting;
        this.waiting = null;
        for (const data of early) this.postMessage(data);
      });
    }

    load(url) {
      return new Promise((loaded, failed) => {
        const script = this.inside.document.createElement("script");
        script.onload = loaded;
        script.onerror = failed;
        script.src = new URL(url, location.href).href;
        this.inside.document.body.append(script);
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
