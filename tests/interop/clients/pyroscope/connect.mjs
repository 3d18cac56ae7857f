// Calls Push with @connectrpc/connect-node, as Grafana's programs do: FOLDER of the packages, URL, KEY and `proto` or
// `json`, then a base64 PushRequest on standard input. Prints "ok", or the code and message of Connect's error.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, url, key, form] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(createRequire(`${folder}/`).resolve(name)));
const { createClient, ConnectError, Code } = await load('@connectrpc/connect');
const { createConnectTransport } = await load('@connectrpc/connect-node');
const { fileDesc, serviceDesc } = await load('@bufbuild/protobuf/codegenv2');
const { fromBinary } = await load('@bufbuild/protobuf');

// The schema, as protoc writes it, on the first line; the message on the second.
const [schema, message] = readFileSync(0, 'utf8').split('\n');
const file = fileDesc(schema);
const service = serviceDesc(file, 0);
const transport = createConnectTransport({
  baseUrl: url,
  httpVersion: '1.1',
  useBinaryFormat: form === 'proto',
  interceptors: [(next) => (request) => {
    request.header.set('Authorization', `Bearer ${key}`);
    return next(request);
  }],
});
const request = fromBinary(service.method.push.input, Buffer.from(message, 'base64'));
try {
  await createClient(service, transport).push(request);
  console.log('ok');
} catch (error) {
  const known = ConnectError.from(error);
  console.log(`${Code[known.code]}: ${known.rawMessage}`);
}
