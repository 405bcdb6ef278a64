const {LoggerProvider,BatchLogRecordProcessor}=require('@opentelemetry/sdk-logs');
const {resourceFromAttributes}=require('@opentelemetry/resources');
const {SeverityNumber}=require('@opentelemetry/api-logs');
const {context,trace}=require('@opentelemetry/api');
const [,,how,url]=process.argv;
const Exporter=require('@opentelemetry/exporter-logs-otlp-'+how).OTLPLogExporter;
const exporter=new Exporter({url, compression: process.argv[4]||'none'});
const provider=new LoggerProvider({resource:resourceFromAttributes({'service.name':'shop','host.name':'web-1','process.pid':77}),
  processors:[new BatchLogRecordProcessor({exporter})]});
const logger=provider.getLogger('orders','1.2',{schemaUrl:'https://example.com/s'});
const ctx=trace.setSpanContext(context.active(),{traceId:'0af7651916cd43dd8448eb211c80319c',spanId:'b7ad6b7169203331',traceFlags:1});
logger.emit({timestamp:[1795369000,123456789],observedTimestamp:[1795369001,5],severityNumber:SeverityNumber.WARN,severityText:'WARN',body:'first message, grüße',
  attributes:{basket:7,price:1.5,paid:true,names:['a','b'],deep:{x:{y:1}}, 'log.record.uid':'01JD'},context:ctx});
logger.emit({timestamp:[1795369002,0],observedTimestamp:[1795369002,0],severityNumber:SeverityNumber.ERROR,body:{order:8,lines:['x']},eventName:'order.failed'});
logger.emit({timestamp:[1795369003,0],observedTimestamp:[1795369003,0],body:Buffer.from('bytes'),attributes:{none:null}});
provider.shutdown().then(()=>process.exit(0),e=>{console.error(e);process.exit(1)});
