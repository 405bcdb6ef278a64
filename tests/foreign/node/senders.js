// Send three messages by a common Node library: node senders.js KIND HOST PORT.
const texts = ['first message', 'second: with a colon', 'third one, grüße'];
const [kind, host, port] = [process.argv[2], process.argv[3], Number(process.argv[4])];
const url = `http://${host}:${port}`;

async function winston(transport) {
  const { createLogger } = require('winston');
  const logger = createLogger({ transports: [transport] });
  for (const text of texts) logger.info(text);
  logger.end();
  await new Promise((finished) => logger.on('finish', finished));
}

async function syslog(protocol) {
  require('winston-syslog');
  const { format, transports } = require('winston');
  const text = format.printf((entry) => entry.message);
  const options = { host, port, protocol, eol: '\n', app_name: 'shop', facility: 'user', localhost: 'web-1', format: text };
  await winston(new transports.Syslog(options));
}

async function gelf(adapterName) {
  const sender = require('gelf-pro');
  sender.setConfig({ adapterName, adapterOptions: { host, port } });
  for (const [number, text] of texts.entries())
    await new Promise((sent, failed) => sender.info(text, { number }, (error) => (error ? failed(error) : sent())));
}

async function forward() {
  const sender = require('fluent-logger').createFluentSender('shop', { host, port, requireAckResponse: true });
  for (const [number, message] of texts.entries())
    await new Promise((sent, failed) => sender.emit('orders', { message, number }, (error) => (error ? failed(error) : sent())));
  sender.end();
}

async function hec() {
  const { Logger } = require('splunk-logging');
  const logger = new Logger({ token: 'anything', url, maxBatchCount: 0 });
  logger.requestOptions.strictSSL = false;
  for (const text of texts) logger.send({ message: { text }, metadata: { source: 'shop', host: 'web-1' } });
  await new Promise((sent, failed) => logger.flush((error, _, body) => (error || body.code ? failed(error || body) : sent())));
}

async function loki() {
  const Loki = require('winston-loki');
  const transport = new Loki({ host: url, labels: { app: 'shop' }, batching: true, interval: 1, json: true });
  const { createLogger } = require('winston');
  const logger = createLogger({ transports: [transport] });
  for (const text of texts) logger.info(text);
  await transport.flush();
}

async function bulk() {
  const { Client } = require('@elastic/elasticsearch');
  const client = new Client({ node: url });
  const datasource = texts.map((message, number) => ({ message, number }));
  const counts = await client.helpers.bulk({ datasource, onDocument: () => ({ create: { _index: 'shop' } }) });
  if (counts.successful !== 3) throw new Error(JSON.stringify(counts));
}

async function otlp(module, path) {
  const { OTLPLogExporter } = require(module);
  const { LoggerProvider, BatchLogRecordProcessor } = require('@opentelemetry/sdk-logs');
  const { resourceFromAttributes } = require('@opentelemetry/resources');
  const exporter = new OTLPLogExporter({ url: url + path });
  const resource = resourceFromAttributes({ 'service.name': 'shop' });
  const provider = new LoggerProvider({ resource, processors: [new BatchLogRecordProcessor({ exporter })] });
  for (const [number, body] of texts.entries())
    provider.getLogger('checkout').emit({ body, timestamp: [1795369000, 125000000], severityNumber: 9, attributes: { number } });
  await provider.forceFlush();
  await provider.shutdown();
}

async function kafka() {
  const { Kafka } = require('kafkajs');
  const producer = new Kafka({ brokers: [`${host}:${port}`] }).producer();
  await producer.connect();
  await producer.send({ topic: 'shop', messages: texts.map((value) => ({ value, headers: { app: 'shop' } })) });
  await producer.disconnect();
}

async function readKafka() {
  const { Kafka } = require('kafkajs');
  const consumer = new Kafka({ brokers: [`${host}:${port}`] }).consumer({ groupId: 'node' });
  await consumer.connect();
  await consumer.subscribe({ topic: 'shop', fromBeginning: true });
  await new Promise((done) => {
    let count = 0;
    consumer.run({ eachMessage: async ({ message }) => { console.log(message.value.toString()); if (++count === 3) done(); } });
  });
  await consumer.disconnect();
}

// npm has no Flight client: messages are declared here, Arrow's own reader takes what they carry.
const flightMessages = `syntax = "proto3";
  message Descriptor { int32 type = 1; bytes cmd = 2; repeated string path = 3; }
  message Ticket { bytes ticket = 1; }
  message Endpoint { Ticket ticket = 1; }
  message Info { bytes schema = 1; Descriptor descriptor = 2; repeated Endpoint endpoint = 3; }
  message Data { bytes data_header = 2; bytes data_body = 1000; }`;

async function readFlight() {
  const grpc = require('@grpc/grpc-js');
  const { tableFromIPC } = require('apache-arrow');
  const messages = require('protobufjs').parse(flightMessages, { keepCase: true }).root;
  const method = (name, sent, received, responseStream) => {
    const [request, response] = [messages.lookupType(sent), messages.lookupType(received)];
    const requestSerialize = (message) => Buffer.from(request.encode(request.fromObject(message)).finish());
    const path = `/arrow.flight.protocol.FlightService/${name}`;
    return { path, requestStream: false, responseStream, requestSerialize, responseDeserialize: (bytes) => response.decode(bytes) };
  };
  const methods = { info: method('GetFlightInfo', 'Descriptor', 'Info', false), get: method('DoGet', 'Ticket', 'Data', true) };
  const Client = grpc.makeGenericClientConstructor(methods, 'FlightService');
  const client = new Client(`${host}:${port}`, grpc.credentials.createInsecure());
  const info = await new Promise((done, failed) =>
    client.info({ type: 1, path: ['shop'] }, (error, answer) => (error ? failed(error) : done(answer))));
  for (const { ticket } of info.endpoint) {
    const pieces = [];
    for await (const { data_header: header, data_body: body } of client.get(ticket)) {
      if (header.length === 0) continue;
      const padding = Buffer.alloc(-header.length & 7);
      const prefix = Buffer.alloc(8, 0xff);
      prefix.writeInt32LE(header.length + padding.length, 4);
      pieces.push(prefix, header, padding, Buffer.from(body));
    }
    for (const payload of tableFromIPC(Buffer.concat(pieces)).getChild('payload')) console.log(Buffer.from(payload).toString());
  }
  client.close();
}

const kinds = {
  'syslog udp': () => syslog('udp4'),
  'syslog tcp': () => syslog('tcp4'),
  'gelf udp': () => gelf('udp'),
  'gelf tcp': () => gelf('tcp'),
  'forward tcp': forward,
  'hec http': hec,
  'loki http': loki,
  'bulk http': bulk,
  'otlp grpc': () => otlp('@opentelemetry/exporter-logs-otlp-grpc', ''),
  'otlp http': () => otlp('@opentelemetry/exporter-logs-otlp-http', '/v1/logs'),
  'kafka': kafka,
  'read kafka': readKafka,
  'read flight': readFlight,
};
kinds[kind]().then(() => setTimeout(process.exit, 300, 0), (error) => { console.error(error); process.exit(1); });
