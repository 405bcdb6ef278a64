import io.aeron.Aeron;
import io.aeron.DirectBufferVector;
import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.ReservedValueSupplier;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.exceptions.AeronException;
import io.aeron.logbuffer.BufferClaim;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.Header;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.zip.CRC32;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The real Aeron, one step at a time: nothing runs but what a line on standard input asks for.
 *
 * <p>Each command is answered with one line. The driver works only in {@code turn}, so that the position limit and
 * the cleaning follow the commands; no time-out is short enough for a busy machine to meet it. Byte i of message n is n * 131 + i * (1 + n mod 7).
 */
public final class AeronScript {
    private static final long AN_HOUR = 3_600_000_000_000L;
    private static final int TURNS = 4;
    private static MediaDriver driver;
    private static Aeron aeron;
    private static ExclusivePublication exclusive;
    private static Publication publication;
    private static final List<Subscription> subscriptions = new ArrayList<>();
    private static final Map<Integer, FragmentAssembler> assemblers = new HashMap<>();
    private static final StringBuilder polled = new StringBuilder();
    private static final BufferClaim claim = new BufferClaim();

    public static void main(final String[] args) throws Exception {
        final MediaDriver.Context context = new MediaDriver.Context()
                .aeronDirectoryName(args[0]).threadingMode(ThreadingMode.INVOKER).dirDeleteOnShutdown(true)
                .clientLivenessTimeoutNs(AN_HOUR).publicationUnblockTimeoutNs(2 * AN_HOUR)
                .imageLivenessTimeoutNs(AN_HOUR).publicationConnectionTimeoutNs(AN_HOUR);
        driver = MediaDriver.launchEmbedded(context);
        aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(args[0])
                .driverTimeoutMs(AN_HOUR / 1_000_000).useConductorAgentInvoker(true).driverAgentInvoker(driver.sharedAgentInvoker()));
        final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        String line;
        while ((line = lines.readLine()) != null) {
            String answer;
            try {
                answer = String.valueOf(obey(line.split(" "), args[0]));
            } catch (final IllegalArgumentException | AeronException error) {
                answer = "refused " + error.getMessage();
            }
            System.out.println(answer);
        }
        aeron.close();
        driver.close();
    }

    private static Object obey(final String[] words, final String directory) throws Exception {
        switch (words[0]) {
            case "open":
                return open(words[1], number(words[2]), "exclusive".equals(words[3]), directory);
            case "subscribe":
                return subscribe(words[1], number(words[2]));
            case "unsubscribe":
                assemblers.clear();
                subscriptions.remove(number(words[1])).close();
                return turn();
            case "turn":
                return turn();
            case "step":
                step();
                return "stepped";
            case "offer":
                return offer(message(number(words[1]), number(words[2])), number(words[2]), Long.parseLong(words[3]));
            case "vector":
                return vector(words);
            case "claim":
                return exclusive != null ? exclusive.tryClaim(number(words[1]), claim)
                        : publication.tryClaim(number(words[1]), claim);
            case "commit":
            case "abort":
                return end(words);
            case "pad":
                return exclusive.appendPadding(number(words[1]));
            case "block":
                final byte[] block = HexFormat.of().parseHex(words[1]);
                return exclusive.offerBlock(new UnsafeBuffer(block), 0, block.length);
            case "poll":
                return poll(number(words[1]), number(words[2]));
            case "assemble":
                return assemble(number(words[1]), number(words[2]));
            case "block_poll":
                return blockPoll(number(words[1]), number(words[2]));
            case "state":
                return exclusive != null ? exclusive.position() + " " + exclusive.positionLimit()
                        : publication.position() + " " + publication.positionLimit();
            case "dump":
                Files.copy(Path.of(words[1]), Path.of(words[2]), StandardCopyOption.REPLACE_EXISTING);
                return "dumped";
            case "inspect":
                return inspect(words);
            case "end":
                return endPublication();
            default:
                assemblers.clear();
                subscriptions.forEach(Subscription::close);
                subscriptions.clear();
                return turn();
        }
    }

    private static int number(final String word) {
        return Integer.parseInt(word);
    }

    private static String turn() {
        for (int i = 0; i < TURNS; i++) {
            step();
        }
        return "turned";
    }

    private static void step() {
        driver.sharedAgentInvoker().invoke();
        aeron.conductorAgentInvoker().invoke();
    }

    private static String open(final String channel, final int stream, final boolean alone, final String directory) {
        exclusive = alone ? aeron.addExclusivePublication(channel, stream) : null;
        publication = alone ? null : aeron.addPublication(channel, stream);
        final long registration = alone ? exclusive.registrationId() : publication.registrationId();
        return registration + " " + new File(directory, "publications/" + registration + ".logbuffer");
    }

    private static String subscribe(final String channel, final int stream) {
        final Subscription subscription = aeron.addSubscription(channel, stream);
        while (subscription.imageCount() == 0) {
            turn();
        }
        turn();
        subscriptions.add(subscription);
        final Image image = subscription.imageAtIndex(0);
        return image.position() + " " + image.correlationId();
    }

    private static UnsafeBuffer message(final int number, final int length) {
        final byte[] bytes = new byte[length + 1];
        for (int i = 0; i < length; i++) {
            bytes[i] = (byte) (number * 131 + i * (1 + number % 7));
        }
        return new UnsafeBuffer(bytes);
    }

    private static long offer(final UnsafeBuffer message, final int length, final long reserved) {
        final ReservedValueSupplier supplier = reserved == 0 ? null : (buffer, offset, size) -> reserved;
        return exclusive != null ? exclusive.offer(message, 0, length, supplier)
                : publication.offer(message, 0, length, supplier);
    }

    /** Words: number, reserved value, and the lengths of the parts of one message. */
    private static long vector(final String[] words) {
        final DirectBufferVector[] parts = new DirectBufferVector[words.length - 3];
        int total = 0;
        for (int i = 3; i < words.length; i++) {
            total += number(words[i]);
        }
        final UnsafeBuffer whole = message(number(words[1]), total);
        int begin = 0;
        for (int i = 0; i < parts.length; i++) {
            parts[i] = new DirectBufferVector(whole, begin, number(words[i + 3]));
            begin += number(words[i + 3]);
        }
        final long reserved = Long.parseLong(words[2]);
        final ReservedValueSupplier supplier = reserved == 0 ? null : (buffer, offset, size) -> reserved;
        return exclusive != null ? exclusive.offer(parts, supplier) : publication.offer(parts, supplier);
    }

    private static String end(final String[] words) {
        final UnsafeBuffer message = message(number(words[1]), claim.length());
        claim.buffer().putBytes(claim.offset(), message, 0, claim.length());
        if (Long.parseLong(words[2]) != 0) {
            claim.reservedValue(Long.parseLong(words[2]));
        }
        if ("commit".equals(words[0])) {
            claim.commit();
        } else {
            claim.abort();
        }
        return "ended";
    }

    private static String poll(final int which, final int limit) {
        return poll(which, limit, handler -> handler);
    }

    private static String assemble(final int which, final int limit) {
        return poll(which, limit, handler -> assemblers.computeIfAbsent(which, each -> new FragmentAssembler(handler)));
    }

    private static String poll(final int which, final int limit, final UnaryOperator<FragmentHandler> through) {
        final Image image = subscriptions.get(which).imageAtIndex(0);
        polled.setLength(0);
        image.poll(through.apply(AeronScript::note), limit);
        return image.position() + polled.toString();
    }

    private static void note(
            final DirectBuffer buffer, final int offset, final int length, final Header header) {
        final byte[] bytes = new byte[length];
        buffer.getBytes(offset, bytes);
        final CRC32 crc = new CRC32();
        crc.update(bytes);
        polled.append(' ').append(length).append(',').append(header.flags() & 0xFF).append(',')
                .append(header.position()).append(',').append(header.reservedValue()).append(',').append(crc.getValue());
    }

    private static String blockPoll(final int which, final int limit) {
        final Image image = subscriptions.get(which).imageAtIndex(0);
        final CRC32 crc = new CRC32();
        final int taken = image.blockPoll((buffer, offset, length, session, term) -> {
            final byte[] bytes = new byte[length];
            buffer.getBytes(offset, bytes);
            crc.update(bytes);
        }, limit);
        return image.position() + " " + taken + " " + crc.getValue();
    }

    /** Words: file, limit, where the text goes, and what is set of LogInspector's properties. */
    private static String inspect(final String[] words) throws Exception {
        for (final String name : new String[] {"data.format", "skipDefaultHeader", "scanOverZeroes"}) {
            System.clearProperty("aeron.log.inspector." + name);
        }
        for (int i = 4; i < words.length; i++) {
            final int at = words[i].indexOf('=');
            System.setProperty("aeron.log.inspector." + words[i].substring(0, at), words[i].substring(at + 1));
        }
        final PrintStream console = System.out;
        try (PrintStream text = new PrintStream(words[3], StandardCharsets.UTF_8)) {
            System.setOut(text);
            new Anew().loadClass("io.aeron.samples.LogInspector").getMethod("main", String[].class)
                    .invoke(null, (Object) new String[] {words[1], words[2]});
            return "inspected";
        } catch (final InvocationTargetException error) {
            return "stopped " + error.getCause();
        } finally {
            System.setOut(console);
        }
    }

    /** LogInspector reads its properties when it is loaded: so it is loaded for each file. */
    private static final class Anew extends ClassLoader {
        protected Class<?> loadClass(final String name, final boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("io.aeron.samples.LogInspector")) {
                return super.loadClass(name, resolve);
            }
            try (InputStream code = getResourceAsStream(name.replace('.', '/') + ".class")) {
                final byte[] bytes = code.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (final IOException error) {
                throw new ClassNotFoundException(name, error);
            }
        }
    }

    private static String endPublication() {
        if (exclusive != null) {
            exclusive.close();
        } else {
            publication.close();
        }
        driver.sharedAgentInvoker().invoke();
        return "ended";
    }
}
