import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/**
 * A program that holds something and is busy: how many MiB, how many seconds of CPU time. Its environment says what
 * Pyroscope's agent for Java does.
 */
public final class Busy {
    static long countInJava(long nanoseconds) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long until = threads.getCurrentThreadCpuTime() + nanoseconds;
        long sum = 0;
        while (threads.getCurrentThreadCpuTime() < until) {
            for (int i = 0; i < 1_000_000; i++) {
                sum += (long) i * i;
            }
        }
        return sum;
    }

    static byte[][] hold(int mebibytes) {
        byte[][] held = new byte[mebibytes][];
        for (int i = 0; i < held.length; i++) {
            held[i] = new byte[1 << 20];
        }
        return held;
    }

    public static void main(String[] arguments) {
        byte[][] held = hold(Integer.parseInt(arguments[0]));
        System.out.println(countInJava(Long.parseLong(arguments[1]) * 1_000_000_000L) + held.length);
    }
}
