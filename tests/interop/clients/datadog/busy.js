// A busy program that profiles itself with dd-trace: FOLDER with the package, and URL of the collector.
// It runs until its standard input is closed.
const { createRequire } = require('node:module');

const [folder, url] = process.argv.slice(2);
Object.assign(process.env, {
  DD_TRACE_AGENT_URL: url,
  DD_SERVICE: 'node.shop',
  DD_ENV: 'test',
  DD_VERSION: '1.4',
  DD_TAGS: 'region:eu',
  DD_PROFILING_ENABLED: 'true',
  DD_PROFILING_UPLOAD_PERIOD: '2',
  // Nothing but profiles is sent.
  DD_TRACING_ENABLED: 'false',
  DD_INSTRUMENTATION_TELEMETRY_ENABLED: 'false',
  DD_REMOTE_CONFIGURATION_ENABLED: 'false',
});

createRequire(`${folder}/`)('dd-trace').init();

function countInJavaScript(most) {
  let total = 0;
  for (let number = 0; number < most; number += 1) total += Math.sqrt(number);
  return total;
}

let isEnded = false;
process.stdin.resume();
process.stdin.on('end', () => { isEnded = true; process.exit(0); });
(function work() {
  countInJavaScript(2_000_000);
  if (!isEnded) setTimeout(work, 20); // most of a core is left to the tests beside it
}());
