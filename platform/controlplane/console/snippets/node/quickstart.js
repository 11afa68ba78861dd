'use strict';

const { randomUUID } = require('crypto');
const { Consumer, Message, Producer } = require('ali-ons');

const options = {
  nameSrv: '@NAMESRV_ADDR@'.split(';'),
  accessKeyId: '@ACCESS_KEY@',
  accessKeySecret: '@SECRET_KEY@',
  httpclient: {}, // only used to look up name servers by HTTP; the address is given above
};

async function main() {
  const key = randomUUID();
  const consumer = new Consumer({
    ...options,
    consumerGroup: 'quickstart-node',
    // A new group begins with the oldest message: its first run also prints what the topic holds already.
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  // A new group has no offsets yet: that is code 22, and no error.
  consumer.on('error', error => {
    if (error.code !== 22 && error.name !== 'SocketCloseError') console.error(error.message);
  });
  const received = new Promise(resolve => {
    consumer.subscribe('@TOPIC@', '*', async message => {
      console.log('received', message.body.toString());
      if (message.keys === key) resolve();
    });
  });
  await consumer.ready();

  const producer = new Producer({ ...options, producerGroup: 'quickstart-node' });
  await producer.ready();
  const message = new Message('@TOPIC@', 'greeting', 'Hello from Node');
  message.keys = [ key ];
  const result = await producer.send(message);
  console.log('sent', result.sendStatus, result.msgId);

  await received;
  await producer.close();
  await consumer.close();
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
