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
};
kinds[kind]().then(() => setTimeout(process.exit, 300, 0), (error) => { console.error(error); process.exit(1); });
