import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.LogBuffers;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.FrameDescriptor;
import io.aeron.logbuffer.LogBufferDescriptor;
import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.samples.LogInspector;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.CRC32;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The real Aeron on the other side of a test.
 *
 * <p>{@code read FILE POSITION} prints the frames of a log buffer, as Aeron's own classes see them.
 * {@code inspect LIMIT FILE...} runs LogInspector on each file.
 * {@code serve DIRECTORY} runs a media driver with one stream at a time and obeys lines on standard input:
 * {@code open CHANNEL STREAM exclusive|concurrent}, {@code stream FIRST COUNT LENGTH}, {@code consumed POSITION}
 * (the registered subscriber goes up to there, so the driver's flow control follows the test), {@code close}.
 */
public final class AeronPeer {
    private static final long TEN_SECONDS = 10_000_000_000L;
    private static volatile long consumed;
    private static volatile boolean closing;
    private static Thread worker = new Thread();

    public static void main(final String[] args) throws Exception {
        if ("read".equals(args[0])) {
            read(args[1], Long.parseLong(args[2]));
        } else if ("inspect".equals(args[0])) {
            for (int i = 2; i < args.length; i++) {
                LogInspector.main(new String[] {args[i], args[1]});
                System.out.println("---- end of " + args[i]);
            }
        } else {
            serve(args[1]);
        }
    }

    private static void read(final String file, final long start) {
        try (LogBuffers log = new LogBuffers(file)) {
            final int termLength = log.termLength();
            final int initial = LogBufferDescriptor.initialTermId(log.metaDataBuffer());
            final int bits = LogBufferDescriptor.positionBitsToShift(termLength);
            final UnsafeBuffer[] terms = log.duplicateTermBuffers();
            final DataHeaderFlyweight header = new DataHeaderFlyweight();
            long position = start;
            while (true) {
                final int offset = (int) (position & (termLength - 1));
                final UnsafeBuffer term = terms[LogBufferDescriptor.indexByPosition(position, bits)];
                final int length = FrameDescriptor.frameLengthVolatile(term, offset);
                header.wrap(term, offset, DataHeaderFlyweight.HEADER_LENGTH);
                if (length <= 0 || position != LogBufferDescriptor.computePosition(
                        header.termId(), header.termOffset(), bits, initial)) {
                    return;
                }
                final CRC32 crc = new CRC32();
                for (int i = DataHeaderFlyweight.HEADER_LENGTH; i < length; i++) {
                    crc.update(term.getByte(offset + i));
                }
                System.out.println(position + " " + length + " " + (header.flags() & 0xFF) + " " + header.headerType()
                        + " " + header.sessionId() + " " + header.streamId() + " " + header.reservedValue()
                        + " " + crc.getValue());
                position += (length + 31) & ~31;
            }
        }
    }

    private static void serve(final String directory) throws Exception {
        final MediaDriver.Context context = new MediaDriver.Context()
                .aeronDirectoryName(directory).threadingMode(ThreadingMode.SHARED).dirDeleteOnShutdown(true)
                .ipcTermBufferLength(65536).publicationTermBufferLength(65536).clientLivenessTimeoutNs(TEN_SECONDS)
                .publicationLingerTimeoutNs(100_000_000L);
        final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (MediaDriver driver = MediaDriver.launch(context);
                Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(directory))) {
            System.out.println("ready");
            String line;
            Stream stream = null;
            while ((line = lines.readLine()) != null) {
                final String[] words = line.split(" ");
                switch (words[0]) {
                    case "open":
                        stream = new Stream(aeron, directory, words[1], Integer.parseInt(words[2]), words[3]);
                        break;
                    case "stream":
                        stream.start(Integer.parseInt(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                        break;
                    case "consumed":
                        consumed = Long.parseLong(words[1]);
                        break;
                    default:
                        stream.close();
                        System.out.println("closed");
                }
            }
            if (stream != null) {
                stream.close();
            }
        }
    }

    /** One publication and the subscriber that the driver knows. */
    private static final class Stream {
        private final Subscription subscription;
        private final ExclusivePublication exclusive;
        private final Publication concurrent;
        private final Image image;
        private final Thread reader;

        Stream(final Aeron aeron, final String directory, final String channel, final int id, final String kind) {
            subscription = aeron.addSubscription(channel, id);
            String target = channel;
            if (channel.contains("endpoint")) {
                while ((target = subscription.tryResolveChannelEndpointPort()) == null) {
                    pause();
                }
                target += "|term-length=64k|mtu=1408";
            }
            exclusive = "exclusive".equals(kind) ? aeron.addExclusivePublication(target, id) : null;
            concurrent = exclusive == null ? aeron.addPublication(target, id) : null;
            while (subscription.imageCount() == 0 || !connected()) {
                pause();
            }
            image = subscription.imageAtIndex(0);
            consumed = image.position();
            closing = false;
            reader = new Thread(this::poll);
            reader.start();
            final long registration = exclusive != null ? exclusive.registrationId() : concurrent.registrationId();
            final File publication = new File(directory, "publications/" + registration + ".logbuffer");
            final File received = new File(directory, "images/" + image.correlationId() + ".logbuffer");
            System.out.println("log " + consumed + " " + publication + " " + (received.exists() ? received : publication));
        }

        private boolean connected() {
            return exclusive != null ? exclusive.isConnected() : concurrent.isConnected();
        }

        private void poll() {
            final FragmentHandler nothing = (buffer, offset, length, header) -> { };
            while (!closing) {
                if (image.boundedPoll(nothing, consumed, 100) == 0) {
                    pause();
                }
            }
        }

        void start(final int first, final int count, final int length) {
            worker = new Thread(() -> write(first, count, length));
            worker.start();
        }

        private void write(final int first, final int count, final int length) {
            final UnsafeBuffer message = new UnsafeBuffer(new byte[length]);
            for (int number = first; number < first + count && !closing; number++) {
                final int size = 4 + (int) (number * 37L % (length - 3));
                message.setMemory(0, size, (byte) number);
                message.putInt(0, number);
                while (offer(message, size) < 0 && !closing) {
                    Thread.onSpinWait();
                }
            }
            System.out.println("streamed " + (exclusive != null ? exclusive.position() : concurrent.position()));
        }

        private long offer(final UnsafeBuffer message, final int size) {
            return exclusive != null ? exclusive.offer(message, 0, size) : concurrent.offer(message, 0, size);
        }

        void close() throws InterruptedException {
            closing = true;
            worker.join();
            reader.join();
            subscription.close();
            if (exclusive != null) {
                exclusive.close();
            } else {
                concurrent.close();
            }
        }
    }

    private static void pause() {
        LockSupport.parkNanos(100_000L);
    }
}
