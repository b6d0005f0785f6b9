// What happens at the gateway, told to a view while it is looked at.

import { follow } from "/console/api.js";
import { useEffect, useState } from "/console/parts.js";

// Call `take` for each event while the component is shown; returns whether there is a connection, null before it is known.
//
// A tab that nobody looks at has no connection: a browser has six of them for one host, and tabs are many. It begins again, with
// the first events, when it is looked at.
export function useEvents(values, take) {
  const [isLive, setLive] = useState(null);
  useEffect(() => {
    let stop = null;
    const look = () => {
      if (document.hidden === (stop === null)) return;
      if (document.hidden) {
        stop.abort();
        stop = null;
        return;
      }
      stop = new AbortController();
      const { signal } = stop;
      (async () => {
        for await (const event of follow("/events", values, signal, setLive)) take(event);
      })().catch(() => setLive(false));
    };
    look();
    document.addEventListener("visibilitychange", look);
    return () => (document.removeEventListener("visibilitychange", look), stop?.abort());
  }, [JSON.stringify(values)]);
  return isLive;
}
