// Calls querier.v1.QuerierService with @connectrpc/connect-node, as Grafana's data source does: FOLDER of the packages, URL,
// KEY and `proto` or `json`. On standard input the schema as base64, then a line for each call: its name, and its request as
// base64. Prints a line for each: "ok" and the answer as base64, or the code and message of Connect's error.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, url, key, form] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(createRequire(`${folder}/`).resolve(name)));
const { createClient, ConnectError, Code } = await load('@connectrpc/connect');
const { createConnectTransport, compressionGzip } = await load('@connectrpc/connect-node');
const { fileDesc, serviceDesc } = await load('@bufbuild/protobuf/codegenv2');
const { fromBinary, toBinary } = await load('@bufbuild/protobuf');

const [schema, ...calls] = readFileSync(0, 'utf8').trim().split('\n');
const service = serviceDesc(fileDesc(schema), 0);
const transport = createConnectTransport({
  baseUrl: url,
  httpVersion: '1.1',
  useBinaryFormat: form === 'proto',
  // Requests are gzipped too, whatever their size.
  acceptCompression: [compressionGzip],
  sendCompression: compressionGzip,
  compressMinBytes: 0,
  interceptors: [(next) => (request) => {
    request.header.set('Authorization', `Basic ${btoa(`grafana:${key}`)}`);
    return next(request);
  }],
});
const client = createClient(service, transport);
for (const call of calls) {
  const [name, message = ''] = call.split(' ');
  const method = service.methods.find((each) => each.name === name);
  try {
    const answer = await client[method.localName](fromBinary(method.input, Buffer.from(message, 'base64')));
    console.log(`ok ${Buffer.from(toBinary(method.output, answer)).toString('base64')}`);
  } catch (error) {
    const known = ConnectError.from(error);
    console.log(`${Code[known.code]}: ${known.rawMessage}`);
  }
}
