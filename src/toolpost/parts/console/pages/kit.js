// What a view of any part builds with: `import { html, Table } from "/console/kit.js"`.
//
// parts    small components: links, badges, code, dialogs, messages
// table    tables that sort, fit the width, and become cards on a phone
// format   numbers, durations and times, each in one way
// live     what happens at the gateway, while the view is looked at
// api      the console's API; `gateway` has the requests to any path

export * from "/console/api.js";
export * from "/console/format.js";
export { ask, events, guarded, guardedEvents, visible } from "/console/gateway.js";
export * from "/console/live.js";
export * from "/console/parts.js";
export * from "/console/table.js";
