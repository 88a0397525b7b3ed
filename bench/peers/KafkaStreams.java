import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The bench's queries in Kafka Streams, exactly once, with one thread.
 *
 * <p>Arguments: query (signed, forgetful, upserts or sliding), bootstrap servers, input topic,
 * output topic, folder of the state, and for windows: size, slide and lateness in ms. Prints "BEGUN"
 * with the first record, and "STATE" with the number of rows in its stores every second.
 *
 * <p>Sums are floating-point numbers and Avro is decoded by hand: both are the fastest way here.
 */
public class KafkaStreams {
  static long size, slide, lateness;
  static boolean hasBegun;

  public static void main(String[] given) {
    String query = given[0], input = given[2], output = given[3];
    size = Long.parseLong(given[5]);
    slide = Long.parseLong(given[6]);
    lateness = Long.parseLong(given[7]);
    Properties settings = new Properties();
    settings.put("application.id", output);
    settings.put("bootstrap.servers", given[1]);
    settings.put("state.dir", given[4]);
    settings.put("auto.offset.reset", "earliest");
    settings.put("processing.guarantee", "exactly_once_v2");
    settings.put("num.stream.threads", 1);
    settings.put("statestore.cache.max.bytes", 64 << 20);
    StreamsBuilder builder = new StreamsBuilder();
    if (query.equals("sliding")) sliding(builder, input, output);
    else corrected(builder, query, input, output);
    var streams = new org.apache.kafka.streams.KafkaStreams(builder.build(), settings);
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
  }

  static void begin() {
    if (hasBegun) return;
    hasBegun = true;
    System.out.println("BEGUN " + System.currentTimeMillis());
  }

  // ------------------------------------------------------------------------ windows, corrected

  static void corrected(StreamsBuilder builder, String query, String input, String output) {
    boolean holdsRows = query.equals("upserts");
    var sums = holdsRows ? Stores.persistentKeyValueStore("sums") : Stores.inMemoryKeyValueStore("sums");
    builder.addStateStore(
        Stores.keyValueStoreBuilder(sums, Serdes.String(), Sum.SERDE).withCachingEnabled());
    if (holdsRows)
      builder.addStateStore(
          Stores.keyValueStoreBuilder(
                  Stores.persistentKeyValueStore("rows"), Serdes.ByteArray(), Serdes.ByteArray())
              .withCachingEnabled());
    String[] stores = holdsRows ? new String[] {"sums", "rows"} : new String[] {"sums"};
    builder.stream(input, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .process(() -> new Corrected(query), stores)
        .to(output, Produced.with(Serdes.String(), Serdes.ByteArray()));
  }

  /**
   * Signed: each record has its original. Upserts: the last row of each key is kept. Forgetful:
   * signed, but a window is closed and dropped as soon as it is late, as bounded state needs it.
   */
  static final class Corrected implements Processor<byte[], byte[], String, byte[]> {
    final boolean holdsRows, forgets;
    final Set<String> changed = new LinkedHashSet<>();
    ProcessorContext<String, byte[]> context;
    KeyValueStore<String, Sum> sums;
    KeyValueStore<byte[], byte[]> rows;
    long newest = Long.MIN_VALUE, dropped, ticks;

    Corrected(String query) {
      holdsRows = query.equals("upserts");
      forgets = query.equals("forgetful");
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
      this.context = context;
      sums = context.getStateStore("sums");
      if (holdsRows) rows = context.getStateStore("rows");
      context.schedule(Duration.ofMillis(100), PunctuationType.WALL_CLOCK_TIME, now -> flush(now));
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
      begin();
      if (holdsRows) {
        byte[] known = rows.get(record.key());
        rows.put(record.key(), record.value());
        if (known != null) move(Trade.read(framed(known)), -1);
        if (record.value() != null) move(Trade.read(framed(record.value())), 1);
        return;
      }
      ByteBuffer body = framed(record.value());
      Avro.number(body); // the op: which sides there are says the same
      Trade before = Avro.number(body) == 0 ? null : Trade.read(body);
      Trade after = Avro.number(body) == 0 ? null : Trade.read(body);
      if (before != null) move(before, -1);
      if (after != null) move(after, 1);
    }

    void move(Trade trade, int sign) {
      newest = Math.max(newest, trade.at);
      for (long start = Math.floorDiv(trade.at, slide) * slide; trade.at < start + size; start -= slide) {
        if (forgets && start + size + lateness <= newest) {
          dropped++;
          continue;
        }
        String key = trade.product + "|" + trade.currency + "|" + start;
        Sum known = sums.get(key);
        sums.put(key, known == null ? new Sum(sign * trade.amount, sign) : known.plus(sign * trade.amount, sign));
        changed.add(key);
      }
    }

    void flush(long now) {
      for (String key : changed) context.forward(new Record<>(key, sums.get(key).text(), now));
      changed.clear();
      if (forgets) forget();
      if (ticks++ % 10 != 0) return;
      long held = sums.approximateNumEntries() + (holdsRows ? rows.approximateNumEntries() : 0);
      System.out.println("STATE " + held);
      if (forgets) System.out.println("DROPPED " + dropped);
    }

    void forget() {
      List<String> closed = new ArrayList<>();
      try (KeyValueIterator<String, Sum> all = sums.all()) {
        while (all.hasNext()) {
          String key = all.next().key;
          long start = Long.parseLong(key.substring(key.lastIndexOf('|') + 1));
          if (start + size + lateness <= newest) closed.add(key);
        }
      }
      closed.forEach(sums::delete);
    }
  }

  // ------------------------------------------------------------------------ overlapping windows

  /** Inserts alone, keyed by product, so that nothing is repartitioned; results once a window closes. */
  static void sliding(StreamsBuilder builder, String input, String output) {
    Deserializer<Trade> read = (topic, value) -> Trade.ofInsert(framed(value));
    Serde<Trade> trades = Serdes.serdeFrom((topic, trade) -> null, read);
    var windows =
        TimeWindows.ofSizeAndGrace(Duration.ofMillis(size), Duration.ofMillis(lateness))
            .advanceBy(Duration.ofMillis(slide));
    builder.stream(
            input,
            Consumed.with(Serdes.String(), trades)
                .withTimestampExtractor((record, partition) -> ((Trade) record.value()).at))
        .mapValues(
            trade -> {
              begin();
              return trade.amount;
            })
        .groupByKey(Grouped.with(Serdes.String(), Serdes.Double()))
        .windowedBy(windows)
        .emitStrategy(EmitStrategy.onWindowClose())
        .aggregate(
            () -> new Sum(0, 0),
            (product, amount, sum) -> sum.plus(amount, 1),
            Materialized.<String, Sum, WindowStore<Bytes, byte[]>>as("windows")
                .withKeySerde(Serdes.String())
                .withValueSerde(Sum.SERDE))
        .toStream()
        .map((window, sum) -> KeyValue.pair(window.key() + "|" + window.window().start(), sum.text()))
        .to(output, Produced.with(Serdes.String(), Serdes.ByteArray()));
  }

  // ------------------------------------------------------------------------ records

  /** Returns the body of a value, after the five bytes that name its schema. */
  static ByteBuffer framed(byte[] value) {
    return ByteBuffer.wrap(value, 5, value.length - 5);
  }

  /** A sum and a count. */
  record Sum(double traded, long trades) {
    static final Serde<Sum> SERDE =
        Serdes.serdeFrom(
            (topic, sum) ->
                sum == null ? null : ByteBuffer.allocate(16).putDouble(sum.traded).putLong(sum.trades).array(),
            (topic, bytes) -> {
              if (bytes == null) return null;
              ByteBuffer buffer = ByteBuffer.wrap(bytes);
              return new Sum(buffer.getDouble(), buffer.getLong());
            });

    Sum plus(double amount, long count) {
      return new Sum(traded + amount, trades + count);
    }

    byte[] text() {
      return (traded + " " + trades).getBytes(StandardCharsets.ISO_8859_1);
    }
  }

  /** A trade of the tape; its amount is the notional times the index factor, or 1. */
  record Trade(long at, String product, String currency, double amount) {
    static Trade read(ByteBuffer body) {
      Avro.skip(body); // the key
      long at = Avro.number(body);
      String product = Avro.text(body), currency = Avro.text(body);
      double notional = Avro.decimal(body) / 1e2;
      double factor = Avro.number(body) == 0 ? 1 : Avro.decimal(body) / 1e8;
      return new Trade(at, product, currency, notional * factor);
    }

    /** Reads the tuple of a revision that is an insert. */
    static Trade ofInsert(ByteBuffer body) {
      for (int i = 0; i < 3; i++) Avro.number(body); // the op, no tuple before, one after
      return read(body);
    }
  }

  /** What the tape's schema needs of Avro's binary encoding. */
  static final class Avro {
    static long number(ByteBuffer body) {
      long bits = 0;
      for (int shift = 0; ; shift += 7) {
        byte next = body.get();
        bits |= (long) (next & 127) << shift;
        if (next >= 0) return (bits >>> 1) ^ -(bits & 1);
      }
    }

    static String text(ByteBuffer body) {
      int length = (int) number(body), from = body.arrayOffset() + body.position();
      body.position(body.position() + length);
      return new String(body.array(), from, length, StandardCharsets.ISO_8859_1);
    }

    static double decimal(ByteBuffer body) {
      int length = (int) number(body);
      if (length > 8) {
        byte[] wide = new byte[length];
        body.get(wide);
        return new BigInteger(wide).doubleValue();
      }
      long value = body.get();
      for (int i = 1; i < length; i++) value = value << 8 | body.get() & 255;
      return value;
    }

    static void skip(ByteBuffer body) {
      int length = (int) number(body);
      body.position(body.position() + length);
    }
  }
}
