// A member of a JGroups 2.12 group with the SEQUENCER stack, under the load of `ordercast bench`.
//
//     java GroupLoad STACK.xml SIZE NODES INDEX RATE WARM_SECONDS SECONDS
//
// It behaves as the nodes of `ordercast bench` do: it says {"ready": true} when all members are there, reads the time at
// which to begin from its standard input, and answers with its figures as one JSON line. Times are those of the
// monotonic clock in nanoseconds, which is System.nanoTime on Linux. With a RATE a message carries the time at which it
// was due, and lateness is measured at every receiver; without one so many own messages are under way as OUTSTANDING
// says: JGroups queues without bound otherwise.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.concurrent.locks.LockSupport;
import org.jgroups.Address;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.ReceiverAdapter;
import org.jgroups.View;

public class GroupLoad extends ReceiverAdapter {
    static final int OUTSTANDING = 2000;
    static final long OUTSTANDING_BYTES = 4L << 20;
    static final int LATE_MAX = 1 << 20;
    static final long READY_SECONDS = 25;

    private final boolean timed;
    private final int[] late;
    private int lateCount;
    private volatile Address self;
    private volatile int members;
    private volatile long messages;
    private volatile long bytes;
    private volatile long own;
    private volatile long readBytes;
    private volatile boolean measuring;

    GroupLoad(boolean timed) {
        this.timed = timed;
        this.late = new int[timed ? LATE_MAX : 0];
    }

    @Override
    public void viewAccepted(View view) {
        members = view.size();
    }

    // SEQUENCER hands messages up one at a time, so one thread at a time writes these.
    @Override
    public void receive(Message message) {
        messages++;
        bytes += message.getLength();
        if (timed) {
            if (measuring && lateCount < LATE_MAX) {
                long due = ByteBuffer.wrap(message.getRawBuffer(), message.getOffset(), Long.BYTES).getLong();
                late[lateCount++] = (int) ((System.nanoTime() - due + 500) / 1000);
            }
        } else {
            readBytes += message.getRawBuffer()[message.getOffset()];
        }
        if (message.getSrc().equals(self)) {
            own++;
        }
    }

    private static double processorSeconds() {
        Object bean = ManagementFactory.getOperatingSystemMXBean();
        return ((com.sun.management.OperatingSystemMXBean) bean).getProcessCpuTime() / 1e9;
    }

    private static void sleepUntil(long time) {
        long left = time - System.nanoTime();
        if (left > 0) {
            LockSupport.parkNanos(left);
        }
    }

    private long send(JChannel channel, byte[] body, long outstanding, double interval, long first, long number,
            long until) throws Exception {
        while (System.nanoTime() < until) {
            if (timed) {
                long due = first + (long) (number * interval);
                if (due > System.nanoTime()) {
                    sleepUntil(Math.min(due, until));
                    continue;
                }
                byte[] message = body.clone();
                ByteBuffer.wrap(message).putLong(due);
                channel.send(new Message(null, null, message));
            } else {
                if (number - own >= outstanding) {
                    LockSupport.parkNanos(100_000);
                    continue;
                }
                channel.send(new Message(null, null, body));
            }
            number++;
        }
        return number;
    }

    public static void main(String[] word) throws Exception {
        if (word.length != 7) {
            System.err.println("usage: GroupLoad STACK.xml SIZE NODES INDEX RATE WARM_SECONDS SECONDS");
            System.exit(2);
        }
        int size = Integer.parseInt(word[1]);
        int nodes = Integer.parseInt(word[2]);
        int index = Integer.parseInt(word[3]);
        double rate = Double.parseDouble(word[4]);
        double warmSeconds = Double.parseDouble(word[5]);
        double seconds = Double.parseDouble(word[6]);
        java.io.PrintStream out = System.out;
        System.setOut(System.err); // GMS prints its address
        GroupLoad load = new GroupLoad(rate > 0);
        JChannel channel = new JChannel(word[0]);
        channel.setReceiver(load);
        channel.connect("bench");
        load.self = channel.getAddress();
        long patience = System.nanoTime() + READY_SECONDS * 1_000_000_000L;
        while (load.members < nodes) {
            if (System.nanoTime() > patience) {
                System.err.println("too few members: " + load.members);
                System.exit(1);
            }
            Thread.sleep(10);
        }
        out.println("{\"ready\": true}");
        out.flush();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        long begin = Long.parseLong(in.readLine().trim());
        long warm = begin + (long) (warmSeconds * 1e9);
        long end = warm + (long) (seconds * 1e9);
        sleepUntil(begin);

        double interval = rate > 0 ? 1e9 / rate : 0;
        long first = begin + (long) (interval * index / nodes);
        byte[] body = new byte[size];
        long outstanding = Math.max(2, Math.min(OUTSTANDING, OUTSTANDING_BYTES / size));
        long number = load.send(channel, body, outstanding, interval, first, 0, warm);
        long messages = load.messages, bytes = load.bytes, started = System.nanoTime();
        double processor = processorSeconds();
        load.measuring = true;
        load.send(channel, body, outstanding, interval, first, number, end);
        load.measuring = false;
        double span = (System.nanoTime() - started) / 1e9;
        StringBuilder line = new StringBuilder();
        line.append("{\"messages_per_s\": ").append((load.messages - messages) / span);
        line.append(", \"bytes_per_s\": ").append((load.bytes - bytes) / span);
        line.append(", \"cpu_s\": ").append(processorSeconds() - processor);
        line.append(", \"late_us\": [");
        for (int at = 0; at < load.lateCount; at++) {
            line.append(at > 0 ? "," : "").append(load.late[at]);
        }
        out.println(line.append("]}"));
        out.flush();
        in.readLine(); // the others may still need what this one has
        Runtime.getRuntime().halt(0);
    }
}
