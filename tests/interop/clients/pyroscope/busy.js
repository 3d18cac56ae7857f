// A busy program that profiles itself with @pyroscope/nodejs: NAME of the package, URL and KEY of the collector.
// It runs until its standard input is closed.
const { createRequire } = require('node:module');

const [folder, name, url, key] = process.argv.slice(2);
const Pyroscope = createRequire(`${folder}/`)(name);

function countInJavaScript(most) {
  let total = 0;
  for (let number = 0; number < most; number += 1) total += Math.sqrt(number);
  return total;
}

Pyroscope.init({
  appName: 'node.shop',
  serverAddress: url,
  authToken: key,
  basicAuthUser: 'anyone',
  basicAuthPassword: key,
  flushIntervalMs: 2000,
  tags: { region: 'eu' },
  wall: { collectCpuTime: true },
});
Pyroscope.start();

let isEnded = false;
process.stdin.resume();
process.stdin.on('end', () => { isEnded = true; process.exit(0); });
(function work() {
  countInJavaScript(2_000_000);
  if (!isEnded) setTimeout(work, 20); // most of a core is left to the tests beside it
}());
